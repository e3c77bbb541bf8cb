"""What a joint schedule would do: one compute lane, communication, both ways of the link, memory over time (README)."""

from msgspec.structs import replace

from solvers.ir.joint import JointProblem
from solvers.ir.report import Report, Span
from solvers.ir.schedule import Action, Schedule
from solvers.timeline.lanes import run_lanes
from solvers.timeline.ops import RUNS, Levels, levels_after, report_of, require_ops

OUT, IN = "0.out", "0.in"
KNOWN = (*RUNS, "collective_wait", "release", "swap_out", "swap_in")


def simulate_joint(problem: JointProblem, schedule: Schedule) -> Report:
    """The report of a joint schedule; raises `InvalidProblem` where it is not a schedule of this problem."""
    require_ops(problem, schedule, KNOWN, "joint")
    link, ops = problem.link, problem.ops

    def ticks(action: Action) -> int:
        op = ops[action.op or 0]
        if action.do in RUNS:
            return op.time_us * link.ticks
        if action.do == "swap_out":
            return problem.out_ticks(action.op or 0)
        return problem.in_ticks(action.op or 0) if action.do == "swap_in" else 0

    host = _Host(problem) if problem.has_launches else None
    spans = {name: _in_us(span, link.ticks) for name, span in run_lanes(schedule, ticks, host).items()}
    report = report_of(problem, spans, _memory(problem, schedule, spans), _stalls(schedule, spans))
    if host is None:
        return report
    base = _base_us(problem)
    if any(op.comm for op in problem.ops):
        return replace(report, base_us=base)  # what communication hides, launches included, is not told apart
    again = sum(problem.ops[action.op or 0].time_us for action in schedule.actions if action.do == "recompute")
    rest = report.makespan_us - base - sum(report.stall_us.values()) - again
    return replace(report, base_us=base, launch_us=rest)


class _Host:
    """What the host issues, action after action (formats.md 14.11), in ticks."""

    def __init__(self, problem: JointProblem) -> None:
        self.problem, self.ticks = problem, problem.link.ticks
        self.now: float = 0

    def issue(self, action: Action) -> tuple[float, float]:
        """The earliest start and end of an action."""
        op = self.problem.ops[action.op or 0]
        if action.do in RUNS:
            self.now += self.ticks * (op.launch_again_us if action.do == "recompute" else op.launch_us)
            return 0, self.now + op.after_launch_us * self.ticks
        if action.do in ("swap_out", "swap_in"):
            self.now += op.copies * self.problem.launch_us * self.ticks
            return self.now, 0
        return 0, 0

    def wait(self, action: Action, end: float, free: dict[str, float]) -> float:
        """The end of a run, for which the host may wait, for the lanes, and for numbers that come by the lane out."""
        op = self.problem.ops[action.op or 0]
        if action.do in RUNS and op.host_waits:
            self.now = max(self.now, end)
        if action.do == "compute" and op.sent_us:
            end = free[OUT] = max(end, self.now, free.get(OUT, 0)) + op.sent_us * self.ticks
        if action.do == "compute" and op.sync:
            self.now = max(self.now, end, *(free.get(lane, 0) for lane in (OUT, IN) if op.sync == "device"))
        if action.do == "compute" and op.read_us:
            end = self.now = free[OUT] = max(end, self.now, free.get(OUT, 0)) + op.read_us * self.ticks
        return end


def _base_us(problem: JointProblem) -> int:
    end = host = 0
    for op in problem.ops:
        host += op.launch_us
        end = max(end + op.time_us, host + op.after_launch_us)
        host = max(host, end) if op.host_waits else host
        end = max(end, host) + op.sent_us if op.sent_us else end
        host = max(host, end) if op.sync else host
        end, host = (max(end, host) + op.read_us,) * 2 if op.read_us else (end, host)
    return end


def _in_us(span: Span, ticks: int) -> Span:
    return Span(
        action=span.action, lane=span.lane, label=span.label,
        start_us=span.start_us / ticks, end_us=span.end_us / ticks,
    )  # fmt: skip


def _memory(problem: JointProblem, schedule: Schedule, spans: dict[int, Span]) -> Levels:
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
    return levels_after(problem.static_bytes, changes)


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
