"""What timelines share: refusals of schedules over a problem's ops, memory over time, the report."""

from collections.abc import Collection, Iterable

from solvers.ir.errors import InvalidProblem
from solvers.ir.joint import JointProblem
from solvers.ir.layout import LayoutProblem
from solvers.ir.recompute import RecomputeGraphProblem
from solvers.ir.report import Report, Span
from solvers.ir.schedule import Schedule
from solvers.timeline.lanes import makespan_us

RUNS = ("compute", "recompute", "collective_start")
Problem = RecomputeGraphProblem | JointProblem
Levels = tuple[tuple[float, int], ...]
"""(time in us, bytes in use from then on)."""


def require_ops(problem: Problem, schedule: Schedule, known: Collection[str], kind: str) -> None:
    """Refuse what has no timeline: missing ops, actions not `known` (order and data are judged elsewhere)."""
    for action in schedule.actions:
        if action.do not in known:
            raise InvalidProblem(f"action {action.id} does {action.do}, which no {kind} schedule does: drop it")
        if action.op is None or action.op >= len(problem.ops):
            raise InvalidProblem(f"action {action.id} belongs to op {action.op}: name one of 0…{len(problem.ops) - 1}")
    first = {action.op for action in schedule.actions if action.do in ("compute", "collective_start")}
    if len(first) != len(problem.ops):
        raise InvalidProblem(
            f"the schedule computes {len(first)} of the problem's {len(problem.ops)} ops: lower a plan of this problem"
        )


def levels_after(static_bytes: int, changes: Iterable[tuple[float, int]]) -> Levels:
    """Bytes in use after each change (time, bytes more), beginning with the static ones."""
    level, levels = static_bytes, [(0.0, static_bytes)]
    for time, change in sorted(changes, key=lambda entry: entry[0]):
        level += change
        levels.append((time, level))
    return tuple(levels)


def report_of(
    problem: Problem | LayoutProblem, spans: dict[int, Span], memory: Levels, stall_us: dict[str, float]
) -> Report:
    """The simulated report of a schedule of the problem; a layout's has no base: updates may run here or there."""
    peak_at, peak = max(memory, key=lambda level: (level[1], -level[0]))
    if isinstance(problem, LayoutProblem):
        base_us, budget_bytes = None, problem.device_bytes
    else:
        base_us, budget_bytes = sum(op.time_us for op in problem.ops), problem.budget_bytes
    return Report(
        name=problem.name,
        how="simulated",
        source="solvers.timeline",
        makespan_us=makespan_us(spans),
        base_us=base_us,
        budget_bytes=budget_bytes,
        peak_bytes=peak,
        peak_at_us=peak_at,
        stall_us=stall_us,
        spans=tuple(spans.values()),
        memory=memory,
    )
