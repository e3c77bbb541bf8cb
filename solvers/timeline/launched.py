"""A swap schedule on a host whose launches take time: lanes, and the host that issues their actions one by one."""

from collections.abc import Sequence
from dataclasses import dataclass

from solvers.ir.errors import InvalidProblem
from solvers.ir.report import Span
from solvers.ir.schedule import Action, Schedule
from solvers.ir.swap import SwapOp, SwapProblem
from solvers.timeline.lanes import label

TURN = {"release": 0, "swap_in": 1, "compute": 2, "swap_out": 3}
"""The order in which the host issues what belongs to one op."""


@dataclass(frozen=True)
class Launched:
    """The spans of all actions by id, and why the step is longer than the base, in microseconds."""

    spans: dict[int, Span]
    makespan_us: float
    stall_us: dict[str, float]
    launch_us: float


def run_launched(problem: SwapProblem, schedule: Schedule) -> Launched:
    """Run the schedule; makespan = base + stalls + launches.

    As an executor's, the span of an op begins when the lane, what it reads and the host have come to it: its launch is
    inside. While the host has not come to an action, the lane waits for the host, not for a transfer. Raises
    `InvalidProblem` where an action waits for one that the host issues later.
    """
    run = _Run(problem)
    for action in sorted(schedule.actions, key=lambda action: (action.op or 0, TURN[action.do])):
        run.issue(action)
    ticks = problem.link.ticks
    spans = {
        action.id: Span(
            action=action.id,
            lane=action.lane,
            label=label(action),
            start_us=run.starts[action.id] / ticks,
            end_us=run.ends[action.id] / ticks,
        )
        for action in schedule.actions
    }
    rest = run.end - base_us(problem.ops) * ticks - sum(run.stalls.values())
    stalls = {cause: time / ticks for cause, time in run.stalls.items()}
    return Launched(spans, run.end / ticks, stalls, rest / ticks)


def base_us(ops: Sequence[SwapOp]) -> int:
    """The end of the last op where nothing is swapped."""
    end = host = 0
    for op in ops:
        host += op.launch_us
        end = max(end + op.time_us, host + op.after_launch_us)
        host = max(host, end) if op.host_waits else host
    return end


class _Run:
    """Lanes and host, every clock in the ticks of the link; `end` is that of the compute lane."""

    def __init__(self, problem: SwapProblem) -> None:
        self.problem, self.ticks = problem, problem.link.ticks
        self.starts: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.stalls = {"swap_in": 0, "swap_out": 0}
        self.free = {"0.out": 0, "0.in": 0}
        self.end = self.host = 0

    def issue(self, action: Action) -> None:
        """One action, when its lane, its waits and the host are there."""
        waits = [self._end_of(action, before) for before in action.after]
        if action.do == "release":
            start = end = self._arrive("swap_out", waits)
        elif action.do == "compute":
            start, end = self._compute(self.problem.ops[action.op or 0], self._arrive("swap_in", waits))
        else:
            start, end = self._transfer(action, waits)
        self.starts[action.id], self.ends[action.id] = start, end

    def _arrive(self, cause: str, waits: list[int]) -> int:
        """The compute lane waits for these ends."""
        begin = max([self.end, *waits])
        self.stalls[cause] += max(begin, self.host) - max(self.end, self.host)
        self.end = begin
        return begin

    def _compute(self, op: SwapOp, begin: int) -> tuple[int, int]:
        start = max(begin, self.host)
        self.host += op.launch_us * self.ticks
        self.end = max(begin + op.time_us * self.ticks, self.host + op.after_launch_us * self.ticks)
        if op.host_waits:
            self.host = max(self.host, self.end)
        return start, self.end

    def _transfer(self, action: Action, waits: list[int]) -> tuple[int, int]:
        self.host += self.problem.launch_us * self.ticks
        link = self.problem.link
        start = max([self.free[action.lane], self.host, *waits])
        taken = link.out_ticks(action.bytes) if action.do == "swap_out" else link.in_ticks(action.bytes)
        self.free[action.lane] = start + taken
        return start, start + taken

    def _end_of(self, action: Action, before: int) -> int:
        if before not in self.ends:
            raise InvalidProblem(
                f"action {action.id} waits for action {before}, which the host issues later: correct their ops or waits"
            )
        return self.ends[before]
