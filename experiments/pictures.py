"""What is drawn, as curves of memory and bars of lanes, and how it is made of what happened; `plots` draws it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from experiments.execution import Decided, Planned
from solvers.ir import OpGraph, Report, Row

LANES = ("0.compute", "0.out", "0.in")
JOIN_SHARE = 5e-4
"""Kernels closer than this share of the step are drawn as one bar."""


@dataclass(frozen=True)
class Curve:
    """Bytes in use over time, as steps: each value holds until the next time."""

    name: str
    points: Sequence[tuple[float, int]]
    end_us: float
    peak_bytes: int


@dataclass(frozen=True)
class Bar:
    """Something that a lane does; `kind` is a key of `experiments.plots.BARS`."""

    lane: str
    kind: str
    start_us: float
    end_us: float


@dataclass(frozen=True)
class Panel:
    """The lanes of one policy."""

    title: str
    bars: Sequence[Bar]
    end_us: float


@dataclass(frozen=True)
class Line:
    """One policy over a swept axis, at one value of the other axis (its group)."""

    policy: str
    group: str
    points: tuple[tuple[float, float], ...]


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


def joined(bars: Sequence[Bar], within_us: float) -> list[Bar]:
    """Kernels of one kind that are closer than `within_us` as one bar: hundreds of kernels, few shapes."""
    found: list[Bar] = []
    last: dict[str, int] = {}
    for bar in sorted(bars, key=lambda bar: (bar.start_us, bar.end_us)):
        place = last.get(bar.lane)
        if place is not None and _continues(found[place], bar, within_us):
            before = found[place]
            found[place] = Bar(bar.lane, bar.kind, before.start_us, max(before.end_us, bar.end_us))
        else:
            last[bar.lane] = len(found)
            found.append(bar)
    return found


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


def _continues(before: Bar, bar: Bar, within_us: float) -> bool:
    """Transfers stay apart: how many there are is worth seeing."""
    alike = before.kind == bar.kind and not bar.kind.startswith("swap")
    return alike and bar.start_us - before.end_us <= within_us
