"""What is drawn of a report: phases, transfers, and what is left of the compute lane as stall."""

from experiments.execution import Planned
from experiments.pictures import curve_of_graph, curve_of_report, panel_of_report
from solvers.ir import Limits, Op, OpGraph
from solvers.ir.swap import SwapLink, SwapOp, SwapProblem, SwapTensor
from solvers.swap import GreedySwap, lower
from solvers.timeline import simulate


def planned() -> Planned:
    """Two ops that fill the memory between a forward and a backward use of one tensor."""
    phases = ("forward", "forward", "forward", "backward")
    problem = SwapProblem(
        name="p",
        budget_bytes=8,
        ops=tuple(SwapOp(name=f"o{number}", time_us=10, phase=phase) for number, phase in enumerate(phases)),  # type: ignore[arg-type]
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


def test_curves_come_from_a_graph_and_from_a_report() -> None:
    ready = planned()
    plain = curve_of_graph("unlimited", ready.graph)
    assert plain.points == [(0, 4), (10, 8), (20, 10), (30, 8)]
    assert (plain.end_us, plain.peak_bytes) == (40, 10)
    swapped = curve_of_report("greedy-swap", simulate(ready.problem, ready.schedule))
    assert swapped.peak_bytes <= 8 and swapped.end_us > 40
