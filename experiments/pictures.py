"""From what happened to what is drawn: curves of memory and bars of lanes."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate, pairwise

from experiments.execution import Decided, Planned
from experiments.plots import Bar, Curve, Panel, joined
from solvers.ir import OpGraph, Report, Row

LANES = ("0.compute", "0.out", "0.in")
JOIN_SHARE = 5e-4
"""Kernels closer than this share of the step are drawn as one bar."""


def curve_of_graph(name: str, graph: OpGraph) -> Curve:
    """Memory during each op of a profiled step."""
    ends = list(accumulate(op.time_us for op in graph.ops))
    starts = [0, *ends[:-1]]
    return Curve(name, list(zip(starts, graph.memory_bytes, strict=True)), ends[-1], max(graph.memory_bytes))


def curve_of_report(name: str, report: Report) -> Curve:
    """Memory during a simulated or executed step."""
    return Curve(name, report.memory, report.makespan_us, report.peak_bytes)


def curve_of_plan(name: str, report: Report) -> Curve:
    """The same where only the plan's own step is known."""
    return replace(curve_of_report(name, report), name=f"{name} ({report.how})")


def why_absent(row: Row) -> str:
    """What a legend says of a policy that has nothing to draw."""
    return f"{row.asked['policy']}: {row.reason or row.outcome}"


def panel_of_report(name: str, report: Report, planned: Planned | Decided) -> Panel:
    """Compute by phase, transfers, and what is left of the compute lane as stall."""
    kinds = _kinds(planned)
    bars = [
        Bar(span.lane, kinds[span.action], span.start_us, span.end_us)
        for span in report.spans
        if span.action in kinds and span.end_us > span.start_us
    ]
    compute = sorted((bar for bar in bars if bar.lane == LANES[0]), key=lambda bar: bar.start_us)
    bars += _gaps(compute, shortest_us=JOIN_SHARE * report.makespan_us)
    parts = [f"{report.makespan_us / 1e3:.2f} ms", f"stall {sum(report.stall_us.values()) / 1e3:.2f} ms"]
    if report.launch_us is not None and report.base_us is not None:
        parts[1:1] = [f"base {report.base_us / 1e3:.2f} ms"]
        parts.append(f"launches {report.launch_us / 1e3:+.2f} ms")
    title = f"{name} ({report.how}): {', '.join(parts)}"
    return Panel(title, joined(bars, JOIN_SHARE * report.makespan_us), report.makespan_us)


def _kinds(planned: Planned | Decided) -> Mapping[int, str]:
    """What each action is drawn as; a release takes no time and is not drawn."""
    phases = {"compute": [op.phase for op in planned.graph.ops]}
    return {
        action.id: phases["compute"][action.op or 0] if action.do == "compute" else action.do
        for action in planned.schedule.actions
        if action.do in ("compute", "recompute", "swap_out", "swap_in")
    }


def _gaps(bars: list[Bar], shortest_us: float) -> list[Bar]:
    return [
        Bar(one.lane, "stall", one.end_us, other.start_us)
        for one, other in pairwise(bars)
        if other.start_us - one.end_us >= shortest_us
    ]
