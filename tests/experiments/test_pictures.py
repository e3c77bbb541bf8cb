"""What is drawn of a report: phases, transfers, and what is left of the compute lane as stall."""

import msgspec

from experiments.execution import Planned
from experiments.pictures import curve_of_graph, curve_of_report, panel_of_report, why_absent
from solvers.ir import Limits, Op, OpGraph, Row
from solvers.ir.swap import SwapLink, SwapOp, SwapProblem, SwapTensor
from solvers.swap import GreedySwap, lower
from solvers.timeline import simulate


def planned(launch_us: int = 0) -> Planned:
    """Two ops that fill the memory between a forward and a backward use of one tensor."""
    phases = ("forward", "forward", "forward", "backward")
    problem = SwapProblem(
        name="p",
        budget_bytes=8,
        ops=tuple(
            SwapOp(name=f"o{number}", time_us=10, phase=phase, launch_us=launch_us)  # type: ignore[arg-type]
            for number, phase in enumerate(phases)
        ),
        memory_bytes=(4, 8, 10, 8),
        tensors=(SwapTensor(id=0, bytes=4, last_forward_use=0, first_backward_use=3),),
        link=SwapLink(out_bytes_per_s=200_000, in_bytes_per_s=200_000, latency_us=5),
    )
    graph = OpGraph(
        name="g",
        ops=tuple(Op(name=op.name, phase=op.phase, time_us=op.time_us) for op in problem.ops),
        tensors=(),
        memory_bytes=problem.memory_bytes,
    )
    plan = GreedySwap().solve(problem, Limits()).plan
    assert plan is not None
    return Planned(graph, problem, lower(problem, plan))


def test_lanes_show_phases_transfers_and_the_stall_between_kernels() -> None:
    ready = planned()
    report = simulate(ready.problem, ready.schedule)
    panel = panel_of_report("greedy-swap", report, ready)
    kinds = [bar.kind for bar in panel.bars]
    assert kinds.count("swap_out") == kinds.count("swap_in") == 1
    assert {"forward", "backward", "stall"} <= set(kinds)
    stalled = sum(bar.end_us - bar.start_us for bar in panel.bars if bar.kind == "stall")
    assert stalled == sum(report.stall_us.values()) > 0
    assert panel.end_us == report.makespan_us
    assert "greedy-swap (simulated)" in panel.title


def test_a_policy_without_a_curve_is_named_with_its_reason() -> None:
    row = Row(
        experiment="e",
        asked={"policy": "none"},
        outcome="timeout",
        figures={},
        provenance="",
        commit=None,
        seed=0,
    )
    assert why_absent(row) == "none: timeout"
    assert why_absent(msgspec.structs.replace(row, reason="it is too large")) == "none: it is too large"


def test_where_launches_are_known_the_title_adds_up() -> None:
    """The tensor leaves 22-47, op 2 runs 47-57 (its launch at 36 alone would let it end at 46), op 3 82-92."""
    ready = planned(launch_us=12)
    report = simulate(ready.problem, ready.schedule)
    assert (report.base_us, report.makespan_us) == (58, 92)
    stall = sum(report.stall_us.values())
    assert report.launch_us == 92 - 58 - stall
    title = panel_of_report("greedy-swap", report, ready).title
    assert title == (
        f"greedy-swap (simulated): 0.09 ms, base 0.06 ms, stall {stall / 1e3:.2f} ms, "
        f"launches {report.launch_us / 1e3:+.2f} ms"
    )


def test_curves_come_from_a_graph_and_from_a_report() -> None:
    ready = planned()
    plain = curve_of_graph("unlimited", ready.graph)
    assert plain.points == [(0, 4), (10, 8), (20, 10), (30, 8)]
    assert (plain.end_us, plain.peak_bytes) == (40, 10)
    swapped = curve_of_report("greedy-swap", simulate(ready.problem, ready.schedule))
    assert swapped.peak_bytes <= 8 and swapped.end_us > 40
