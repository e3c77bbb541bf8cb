"""What one executed step did: counts, and a report of the same type that the timeline predicts."""

from dataclasses import dataclass

from msgspec import UNSET
from msgspec.structs import replace

from runtime.device.native import core
from solvers.ir.graph import OpGraph
from solvers.ir.report import Report, Span
from solvers.ir.schedule import Schedule
from solvers.timeline.lanes import label

STALL_CAUSES = ("swap_in", "swap_out", "on_demand")
"""In the engine's order: data awaited, memory awaited, data fetched because no plan brought it in time."""


@dataclass(frozen=True, kw_only=True)
class SwapCounts:
    """How the plan and the step agreed.

    `swapped_out` and `swapped_in` count copies. Used on demand, found by the guard: `fetched` were away, `cancelled`
    were still leaving, `early` were on their way back. `died` were freed while out. `refused` swap-outs found a storage
    that cannot leave; `postponed` swap-ins found no memory; `left_out` storages are still out for lack of it.
    `departure` tells the first difference that ended the plan: after it nothing more is swapped out. `difference` tells
    the first that did not: a result of another size than in the profile, or a tensor that could not leave.
    """

    planned: int
    swapped_out: int
    swapped_in: int
    fetched: int
    cancelled: int
    early: int
    died: int
    refused: int
    postponed: int
    left_out: int
    out_bytes: int
    in_bytes: int
    host_peak_bytes: int
    operators: int
    operators_planned: int
    operators_followed: int
    departure: str | None
    difference: str | None = None

    @property
    def on_demand(self) -> int:
        """Number of storages that no plan brought back in time."""
        return self.fetched + self.cancelled + self.early

    @property
    def as_planned(self) -> bool:
        """Whether every operator ran and every swap happened as planned."""
        return (
            self.departure is None
            and self.difference is None
            and self.operators == self.operators_planned == self.operators_followed
            and self.swapped_out == self.swapped_in == self.planned
            and self.on_demand == self.refused == self.postponed == self.left_out == 0
        )


def counts_of(outcome: core.SwapOutcome, schedule: Schedule, operators_planned: int) -> SwapCounts:
    """The engine's counts beside the plan's."""
    counts = outcome.counts
    departure = outcome.departure
    if departure is None and outcome.followed < operators_planned:
        departure = f"the step ends after {outcome.followed} operators, its profile has {operators_planned}"
    return SwapCounts(
        planned=sum(len(action.data) for action in schedule.actions if action.do == "swap_out"),
        swapped_out=counts.swapped_out,
        swapped_in=counts.swapped_in,
        fetched=counts.fetched,
        cancelled=counts.cancelled,
        early=counts.early,
        died=counts.died,
        refused=outcome.refused,
        postponed=outcome.postponed,
        left_out=outcome.left_out,
        out_bytes=counts.out_bytes,
        in_bytes=counts.in_bytes,
        host_peak_bytes=outcome.host_peak_bytes,
        operators=outcome.operators,
        operators_planned=operators_planned,
        operators_followed=outcome.followed,
        departure=departure,
        difference=outcome.difference,
    )


@dataclass(frozen=True)
class Marks:
    """What the engine marked in one step, before the next one overwrites it; microseconds from the step's begin.

    `spans` and `stalls` are (action or cause, begin, end), `memory` (time, bytes in use, peak so far).
    """

    spans: list[tuple[int, float, float]]
    stalls: list[tuple[int, float, float]]
    memory: list[tuple[float, int, int]]
    makespan_us: float
    peak_bytes: int


def marks_of(step: core.SwapStep, outcome: core.SwapOutcome) -> Marks:
    """The marks of the step that the engine executed last."""
    return Marks(step.spans(), step.stalls(), step.memory(), step.makespan_us(), outcome.peak_bytes)


def report_of(marks: Marks, schedule: Schedule, graph: OpGraph, source: str) -> Report:
    """The report of an executed step, with what its profile explains of it."""
    spans = []
    for number, begin, end in marks.spans:
        action = schedule.actions[number]
        start = max(begin, 0.0)
        spans.append(
            Span(action=action.id, lane=action.lane, label=label(action), start_us=start, end_us=max(end, start))
        )
    stall = dict.fromkeys(STALL_CAUSES, 0.0)
    for cause, begin, end in marks.stalls:
        stall[STALL_CAUSES[cause]] += max(end - begin, 0.0)
    peak = marks.peak_bytes
    report = Report(
        name=graph.name,
        how="executed",
        source=source,
        makespan_us=marks.makespan_us,
        peak_bytes=peak,
        peak_at_us=next((max(at, 0.0) for at, _, most in marks.memory if most >= peak), marks.makespan_us),
        stall_us=stall,
        spans=tuple(sorted(spans, key=lambda span: (span.start_us, span.action))),
        memory=tuple((max(at, 0.0), in_use) for at, in_use, _ in marks.memory),
    )
    return _explained(report, graph)


def _explained(report: Report, graph: OpGraph) -> Report:
    """An executed report beside the profiled step: its base, and what is left of makespan − base as launches.

    Where the profile knows no launches, or the step was not traced, the report stays as it is.
    """
    if not report.spans or any(op.launch is UNSET for op in graph.ops):
        return report
    base = float(sum(op.time_us for op in graph.ops))
    launches = report.makespan_us - base - sum(report.stall_us.values())
    return replace(report, base_us=base, launch_us=launches)
