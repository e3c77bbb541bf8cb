"""Judge of recompute-graph schedules (formats.md 11.6): data, memory and leaks by order alone, never by durations."""

from itertools import pairwise

from solvers.check.order import HappensBefore
from solvers.check.verdict import Verdict
from solvers.ir.joint import JointProblem
from solvers.ir.recompute import RecomputeGraphProblem
from solvers.ir.schedule import Action, Schedule

COMPUTE, COMM = "0.compute", "0.comm"
RUNS = ("compute", "recompute", "collective_start")


def judge_recompute_schedule(problem: RecomputeGraphProblem, schedule: Schedule) -> Verdict:
    """Each op first run in order, inputs there whenever a run starts, memory within budget, everything released."""
    faults = [fault for action in schedule.actions for fault in form(problem, action)]
    return Verdict(tuple(faults or RunsJudge(problem, schedule).violations()))


def form(problem: RecomputeGraphProblem | JointProblem, action: Action) -> list[str]:
    """Known actions on their lanes; runs and releases name their op's output and its size."""
    place = f"action {action.id}"
    if action.do not in (*RUNS, "collective_wait", "release"):
        return [f"{place} does {action.do}, but this schedule has only {', '.join(RUNS)}, collective_wait and release"]
    if action.op is None or action.op >= len(problem.ops):
        return [f"{place} belongs to op {action.op}, but ops are 0…{len(problem.ops) - 1}"]
    op, faults = problem.ops[action.op], []
    lane = COMM if op.comm and action.do in RUNS else COMPUTE
    if action.lane != lane:
        faults.append(f"{place} does {action.do} of op {action.op} on lane {action.lane}, but it belongs on {lane}")
    if (action.do == "compute" and op.comm) or (action.do == "collective_start" and not op.comm):
        faults.append(f"{place} does {action.do}, but op {action.op} is {'' if op.comm else 'not '}a communication")
    if action.do == "recompute" and not op.replay:
        faults.append(f"{place} recomputes op {action.op}, which must not run twice")
    expected = ((), 0) if action.do == "collective_wait" else ((action.op,), op.output_bytes)
    if (action.data, action.bytes) != expected:
        faults.append(f"{place} has data {list(action.data)} of {action.bytes} bytes, but {action.do} has {expected}")
    return faults


class RunsJudge:
    """A well-formed schedule in an order that respects its waits; `story[i]` is what happens to op i's output."""

    def __init__(self, problem: RecomputeGraphProblem | JointProblem, schedule: Schedule) -> None:
        self.problem, self.before = problem, HappensBefore(schedule)
        self.order = schedule.order()
        self.place = {action.id: number for number, action in enumerate(self.order)}
        self.lane = [action for action in schedule.actions if action.lane == COMPUTE]
        self.remote = [action for action in schedule.actions if action.lane == COMM]
        self.story: list[list[Action]] = [[] for _ in problem.ops]
        for action in self.order:
            if action.do != "collective_wait" and action.op is not None:
                self.story[action.op].append(action)

    def violations(self) -> list[str]:
        """What breaks a rule, in order; memory only where all else is right."""
        found = self._first_runs()
        for i in range(len(self.problem.ops)):
            found += self.alternation(i)
        return found or [*self._early(), *self._reads(), *self.memory()]

    def _first_runs(self) -> list[str]:
        """compute or collective_start once for each op, one after the other."""
        firsts = [action for action in self.order if action.do in ("compute", "collective_start")]
        if [action.op for action in firsts] != list(range(len(self.problem.ops))):
            return [f"the first runs are of ops {[a.op for a in firsts][:20]}…, but each is due once, in order"]
        return [
            f"op {later.op} does not wait for op {earlier.op}, which comes before it"
            for earlier, later in pairwise(firsts)
            if not self.before(earlier, later)
        ]

    def _early(self) -> list[str]:
        """No run is repeated before the turn of op `replays_from`: the op before it has surely ended by then."""
        first = self.problem.replays_from
        ended = [a for a in self.order if a.do in ("compute", "collective_wait") and a.op == first - 1]
        return [
            f"action {action.id} recomputes op {action.op}, but nothing runs again before the turn of op {first}"
            for action in self.order
            if action.do == "recompute" and first > 0 and not (ended and self.before(ended[0], action))
        ]

    def alternation(self, i: int) -> list[str]:
        """Run, release, run again, …, release: each surely after the one before, the first run not a recomputation."""
        story, found = self.story[i], []
        if not story or story[0].do not in ("compute", "collective_start"):
            return [f"op {i} is recomputed or released before it has run"]
        for earlier, later in pairwise(story):
            if (earlier.do == "release") == (later.do == "release"):
                found.append(f"op {i} has {later.do} (action {later.id}) after {earlier.do} (action {earlier.id})")
            elif not self.before(earlier, later):
                found.append(f"action {later.id} does not wait for action {earlier.id}, both of op {i}'s output")
        if story[-1].do != "release":
            found.append(f"op {i}'s output is never released after action {story[-1].id}")
        return found

    def _reads(self) -> list[str]:
        """A run finds each input finished and not released, and has ended before the input is released."""
        found = []
        for run in self.order:
            if run.do in RUNS and run.op is not None:
                for j in sorted(set(self.problem.ops[run.op].inputs)):
                    found += self._read(run, j)
        return found

    def _read(self, run: Action, j: int) -> list[str]:
        earlier = [action for action in self.story[j] if self.place[action.id] < self.place[run.id]]
        later = [action for action in self.story[j] if self.place[action.id] > self.place[run.id]]
        place = f"action {run.id} ({run.do} of op {run.op})"
        if not earlier or earlier[-1].do == "release":
            return [f"{place} reads op {j}, which is not there"]
        if not self.before(earlier[-1], run):
            return [f"{place} reads op {j} without waiting for action {earlier[-1].id}, which makes it"]
        return [] if self.before(run, later[0]) else [f"{place} reads op {j}, which action {later[0].id} may release"]

    def memory(self) -> list[str]:
        """At each action of the compute lane, what may be allocated: of the comm lane all that is not surely later."""
        found, level = [], self.problem.static_bytes
        waiting = list(self.remote)
        for action in self.lane:
            while waiting and not self.before(action, waiting[0]):
                level += waiting.pop(0).bytes
            level += action.bytes if action.do in RUNS else 0
            if level > self.problem.budget_bytes:
                found.append(f"action {action.id} finds {level} bytes in use, budget {self.problem.budget_bytes}")
            level -= action.bytes if action.do == "release" else 0
        return found
