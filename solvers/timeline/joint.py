"""What a joint schedule would do: one compute lane, communication, both ways of the link, memory over time (README)."""

from solvers.ir.errors import InvalidProblem
from solvers.ir.joint import JointProblem
from solvers.ir.report import Report, Span
from solvers.ir.schedule import Action, Schedule
from solvers.timeline.lanes import makespan_us, run_lanes

RUNS = ("compute", "recompute", "collective_start")
KNOWN = (*RUNS, "collective_wait", "release", "swap_out", "swap_in")


def simulate_joint(problem: JointProblem, schedule: Schedule) -> Report:
    """The report of a joint schedule; raises `InvalidProblem` where it is not a schedule of this problem."""
    _require_ops(problem, schedule)
    link, ops = problem.link, problem.ops

    def ticks(action: Action) -> int:
        op = ops[action.op or 0]
        if action.do in RUNS:
            return op.time_us * link.ticks
        if action.do == "swap_out":
            return link.out_ticks(op.output_bytes)
        return link.in_ticks(op.output_bytes) if action.do == "swap_in" else 0

    spans = {name: _in_us(span, link.ticks) for name, span in run_lanes(schedule, ticks).items()}
    memory = _memory(problem, schedule, spans)
    peak_at, peak = max(memory, key=lambda level: (level[1], -level[0]))
    return Report(
        name=problem.name,
        how="simulated",
        source="solvers.timeline",
        makespan_us=makespan_us(spans),
        base_us=sum(op.time_us for op in ops),
        budget_bytes=problem.budget_bytes,
        peak_bytes=peak,
        peak_at_us=peak_at,
        stall_us=_stalls(schedule, spans),
        spans=tuple(spans.values()),
        memory=memory,
    )


def _in_us(span: Span, ticks: int) -> Span:
    return Span(
        action=span.action, lane=span.lane, label=span.label,
        start_us=span.start_us / ticks, end_us=span.end_us / ticks,
    )  # fmt: skip


def _require_ops(problem: JointProblem, schedule: Schedule) -> None:
    """Refuse what has no timeline: missing ops, foreign actions (order and data are judged elsewhere)."""
    for action in schedule.actions:
        if action.do not in KNOWN:
            raise InvalidProblem(f"action {action.id} does {action.do}, which no joint schedule does: drop it")
        if action.op is None or action.op >= len(problem.ops):
            raise InvalidProblem(f"action {action.id} belongs to op {action.op}: name one of 0…{len(problem.ops) - 1}")
    first = {action.op for action in schedule.actions if action.do in ("compute", "collective_start")}
    if len(first) != len(problem.ops):
        raise InvalidProblem(
            f"the schedule computes {len(first)} of the problem's {len(problem.ops)} ops: lower a plan of this problem"
        )


def _memory(problem: JointProblem, schedule: Schedule, spans: dict[int, Span]) -> tuple[tuple[float, int], ...]:
    """Bytes in use at each change: of a run from its start, of what returns from its issue on, until the release."""
    changes: list[tuple[float, int]] = []
    for action in schedule.order():
        span, workspace = spans[action.id], problem.ops[action.op or 0].workspace_bytes
        if action.do in RUNS:
            changes += [(span.start_us, action.bytes + workspace), (span.end_us, -workspace)]
        elif action.do == "swap_in":
            changes.append((max([0.0, *(spans[before].end_us for before in action.after)]), action.bytes))
        elif action.do == "release":
            changes.append((span.end_us, -action.bytes))
    level, levels = problem.static_bytes, [(0.0, problem.static_bytes)]
    for time, change in sorted(changes, key=lambda entry: entry[0]):
        level += change
        levels.append((time, level))
    return tuple(levels)


def _stalls(schedule: Schedule, spans: dict[int, Span]) -> dict[str, float]:
    """Idle time of the compute lane, by what it waits for: memory (a release), data or communication."""
    free, stalls = 0.0, {"swap_out": 0.0, "swap_in": 0.0, "communication": 0.0}
    for action in schedule.actions:
        if action.lane != "0.compute":
            continue
        cause = {"release": "swap_out", "collective_wait": "communication"}.get(action.do, "swap_in")
        stalls[cause] += spans[action.id].start_us - free
        free = spans[action.id].end_us
    return stalls
