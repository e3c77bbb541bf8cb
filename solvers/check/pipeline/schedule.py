"""Judge of pipeline schedules (formats.md 11.8): passes, messages, data, windows, memory; by order, never by durations.

Everything that touches a rank's memory stands on its compute lane, so that lane is walked once; what waits for whom
across lanes and ranks is asked of vector clocks.
"""

from collections import Counter
from itertools import pairwise

from solvers.check.order import HappensBefore
from solvers.check.pipeline.walk import LANES, Walk, form
from solvers.check.verdict import Verdict
from solvers.ir.pipeline import PipelineProblem
from solvers.ir.schedule import Action, Schedule


def judge_pipeline_schedule(problem: PipelineProblem, schedule: Schedule) -> Verdict:
    """Every pass once and in order, inputs there, replays within their windows, budgets kept, messages waited for."""
    faults = [fault for action in schedule.actions for fault in form(problem, action)]
    if faults:
        return Verdict(tuple(faults))
    lanes: dict[str, list[Action]] = {f"{p}.{lane}": [] for p in range(len(problem.stages)) for lane in LANES}
    for action in schedule.actions:
        lanes[action.lane].append(action)
    walks = [Walk(problem, stage, lanes[f"{stage}.compute"]) for stage in range(len(problem.stages))]
    faults = [fault for walk in walks for fault in walk.faults]
    held = sum(walk.layers for walk in walks)
    if not faults and held != problem.layers:
        faults.append(f"the ranks run {held} layers, but the problem has {problem.layers}")
    return Verdict(tuple(faults or _Waits(problem, schedule, walks, lanes).faults()))


class _Waits:
    """What must have ended before what: collectives, and messages between neighbours."""

    def __init__(
        self, problem: PipelineProblem, schedule: Schedule, walks: list[Walk], lanes: dict[str, list[Action]]
    ) -> None:
        self.problem, self.walks, self.lanes = problem, walks, lanes
        self.before = HappensBefore(schedule)

    def faults(self) -> list[str]:
        found = []
        for stage, walk in enumerate(self.walks):
            found += self._collectives(stage, walk)
            for direction, peer in (("forward", stage + 1), ("backward", stage - 1)):
                if 0 <= peer < len(self.walks):
                    found += self._messages(stage, peer, direction)
            expected = self.problem.microbatches * (2 * len(self.walks) - 2)
        counted = Counter(action.do for lane in self.lanes.values() for action in lane)
        if counted["send"] + counted["recv"] != 2 * expected // 1:
            found.append(
                f"there are {counted['send']} sends and {counted['recv']} recvs, but {expected} of each are due"
            )
        return found

    def _collectives(self, stage: int, walk: Walk) -> list[str]:
        """Each begins after the stretch before it, and its wait waits for it; none is left over."""
        found, begun = [], {_key(action): action for action in self.lanes[f"{stage}.comm"]}
        if len(begun) != len(self.lanes[f"{stage}.comm"]):
            found.append(f"rank {stage} begins a collective twice")
        for wait, stretch in walk.waits:
            start = begun.pop(_key(wait), None)
            if start is None:
                found.append(f"action {wait.id} waits for a collective that never begins")
            elif not self.before(start, wait):
                found.append(f"action {wait.id} does not wait for action {start.id}, the collective that it is of")
            elif not self.before(stretch, start):
                found.append(f"action {start.id} does not wait for action {stretch.id}, which comes before it")
        return found + [f"action {action.id} begins a collective that nothing waits for" for action in begun.values()]

    def _messages(self, stage: int, peer: int, direction: str) -> list[str]:
        """For each microbatch: last of the pass here, send, recv, first of the pass there."""
        found = []
        sends = {a.microbatch: a for a in self.lanes[f"{stage}.out"] if (a.direction, a.peer) == (direction, peer)}
        arrivals = {a.microbatch: a for a in self.lanes[f"{peer}.in"] if (a.direction, a.peer) == (direction, stage)}
        for m in range(self.problem.microbatches):
            place = f"the {direction} message of microbatch {m} from rank {stage} to {peer}"
            if m not in sends or m not in arrivals:
                found.append(f"{place} is not sent or does not arrive")
                continue
            chain = [self.walks[stage].ends[direction, m], sends[m], arrivals[m], self.walks[peer].begins[direction, m]]
            for first, second in pairwise(chain):
                if not self.before(first, second):
                    found.append(f"action {second.id} does not wait for action {first.id}, on the way of {place}")
        return found


def _key(action: Action) -> tuple[int | None, int | None, object]:
    return action.op, action.microbatch, action.direction
