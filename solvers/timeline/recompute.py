"""What a recompute-graph schedule would do: communication beside recomputation, memory over time (README)."""

from solvers.ir.errors import InvalidProblem
from solvers.ir.recompute import RecomputeGraphProblem
from solvers.ir.report import Report, Span
from solvers.ir.schedule import Action, Schedule
from solvers.timeline.lanes import makespan_us, run_lanes

RUNS = ("compute", "recompute", "collective_start")


def simulate_recompute(problem: RecomputeGraphProblem, schedule: Schedule) -> Report:
    """The report of a recompute-graph schedule; raises `InvalidProblem` where it is not a schedule of this problem."""
    _require_ops(problem, schedule)
    spans = run_lanes(schedule, lambda action: problem.ops[action.op or 0].time_us if action.do in RUNS else 0)
    memory = _memory(problem, schedule, spans)
    peak_at, peak = max(memory, key=lambda level: (level[1], -level[0]))
    return Report(
        name=problem.name,
        how="simulated",
        source="solvers.timeline",
        makespan_us=makespan_us(spans),
        base_us=sum(op.time_us for op in problem.ops),
        budget_bytes=problem.budget_bytes,
        peak_bytes=peak,
        peak_at_us=peak_at,
        stall_us={"communication": _waiting(schedule, spans)},
        spans=tuple(spans.values()),
        memory=memory,
    )


def _require_ops(problem: RecomputeGraphProblem, schedule: Schedule) -> None:
    """Refuse what has no timeline: missing ops, foreign actions (order and data are judged elsewhere)."""
    for action in schedule.actions:
        if action.do not in (*RUNS, "collective_wait", "release"):
            raise InvalidProblem(
                f"action {action.id} does {action.do}, which no recompute-graph schedule does: drop it"
            )
        if action.op is None or action.op >= len(problem.ops):
            raise InvalidProblem(f"action {action.id} belongs to op {action.op}: name one of 0…{len(problem.ops) - 1}")
    first = {action.op for action in schedule.actions if action.do in ("compute", "collective_start")}
    if len(first) != len(problem.ops):
        raise InvalidProblem(
            f"the schedule computes {len(first)} of the problem's {len(problem.ops)} ops: lower a plan of this problem"
        )


def _memory(
    problem: RecomputeGraphProblem, schedule: Schedule, spans: dict[int, Span]
) -> tuple[tuple[float, int], ...]:
    """Bytes in use at each change: an output counts from the start of its run (a buffer too) until its release."""
    changes: list[tuple[float, int]] = []
    for action in schedule.order():
        if action.do in RUNS:
            changes.append((spans[action.id].start_us, action.bytes))
        elif action.do == "release":
            changes.append((spans[action.id].end_us, -action.bytes))
    level, levels = problem.static_bytes, [(0.0, problem.static_bytes)]
    for time, change in sorted(changes, key=lambda entry: entry[0]):
        level += change
        levels.append((time, level))
    return tuple(levels)


def _waiting(schedule: Schedule, spans: dict[int, Span]) -> float:
    """Idle time of the compute lane: it waits for communication only."""
    free = waited = 0.0
    lane: list[Action] = [action for action in schedule.actions if action.lane == "0.compute"]
    for action in lane:
        waited += spans[action.id].start_us - free
        free = spans[action.id].end_us
    return waited
