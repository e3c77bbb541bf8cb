"""What a recompute-graph schedule would do: communication beside recomputation, memory over time (README)."""

from solvers.ir.recompute import RecomputeGraphProblem
from solvers.ir.report import Report, Span
from solvers.ir.schedule import Action, Schedule
from solvers.timeline.lanes import run_lanes
from solvers.timeline.ops import RUNS, Levels, levels_after, report_of, require_ops

KNOWN = (*RUNS, "collective_wait", "release")


def simulate_recompute(problem: RecomputeGraphProblem, schedule: Schedule) -> Report:
    """The report of a recompute-graph schedule; raises `InvalidProblem` where it is not a schedule of this problem."""
    require_ops(problem, schedule, KNOWN, "recompute-graph")
    spans = run_lanes(schedule, lambda action: problem.ops[action.op or 0].time_us if action.do in RUNS else 0)
    stalls = {"communication": _waiting(schedule, spans)}
    return report_of(problem, spans, _memory(problem, schedule, spans), stalls)


def _memory(problem: RecomputeGraphProblem, schedule: Schedule, spans: dict[int, Span]) -> Levels:
    """Bytes in use at each change: an output counts from the start of its run (a buffer too) until its release."""
    changes: list[tuple[float, int]] = []
    for action in schedule.order():
        if action.do in RUNS:
            changes.append((spans[action.id].start_us, action.bytes))
        elif action.do == "release":
            changes.append((spans[action.id].end_us, -action.bytes))
    return levels_after(problem.static_bytes, changes)


def _waiting(schedule: Schedule, spans: dict[int, Span]) -> float:
    """Idle time of the compute lane: it waits for communication only."""
    free = waited = 0.0
    lane: list[Action] = [action for action in schedule.actions if action.lane == "0.compute"]
    for action in lane:
        waited += spans[action.id].start_us - free
        free = spans[action.id].end_us
    return waited
