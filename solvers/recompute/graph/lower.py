"""From a recompute-graph plan to a schedule: what runs where, what waits for communication, when outputs are freed."""

from collections.abc import Mapping

from solvers.ir.errors import InvalidProblem
from solvers.ir.recompute import RecomputeGraphPlan, RecomputeGraphProblem
from solvers.ir.schedule import Action, Do, Schedule
from solvers.recompute.graph.replay import Instance, Sets, instance, replay_runs, runs_of

COMPUTE, COMM = "0.compute", "0.comm"


def lower(problem: RecomputeGraphProblem, plan: RecomputeGraphPlan) -> Schedule:
    """The schedule whose timeline and memory are exactly the plan's (README, Lowering).

    Raises `InvalidProblem` where the plan breaks a rule of its problem.
    """
    given = instance(problem)
    runs, violation, _ = runs_of(given, _by_stage(given, plan.compute), _kept(given, plan))
    violation = violation or replay_runs(given, runs).violation
    if violation is not None:
        raise InvalidProblem(f"the plan is invalid ({violation}): check it with `bayplan check` before lowering")
    return _Lowering(given, runs).schedule()


def _by_stage(given: Instance, pairs: tuple[tuple[int, int], ...]) -> Sets:
    found: list[set[int]] = [set() for _ in range(len(given))]
    for t, i in pairs:
        if t >= len(given):
            raise InvalidProblem(
                f"the plan names stage {t}, but stages are 0…{len(given) - 1}: give this problem's plan"
            )
        found[t].add(i)
    return found


def _kept(given: Instance, plan: RecomputeGraphPlan) -> Sets:
    """What each stage finds, from pairs and runs."""
    runs = ((t, i) for i, first, last in plan.keep_runs for t in range(first, min(last, len(given)) + 1))
    return _by_stage(given, (*plan.keep, *runs))


class _Lowering:
    """One pass over the stages; `kept` maps what is kept at the stage's start to the last stage that it is kept in."""

    def __init__(self, given: Instance, runs: list[dict[int, int]]) -> None:
        self.given, self.runs = given, runs
        self.kept: dict[int, int] = {}
        self.actions: list[Action] = []
        self.latest: dict[str, int] = {}

    def schedule(self) -> Schedule:
        """All stages in order."""
        for t, run in enumerate(self.runs):
            self._stage(t, run)
            self.kept = {i: until for i, until in {**self.kept, **run}.items() if until > t}
        return Schedule(lanes=(COMPUTE, COMM), actions=tuple(self.actions))

    def _stage(self, t: int, run: Mapping[int, int]) -> None:
        """A communication starts first and is waited for last; what it hides, and the rest, runs in between."""
        given, order = self.given, sorted(run)
        last = {j: i for i in order for j in (*given.inputs[i], i)}
        start = self._run("collective_start", t) if given.comm[t] else None
        for i in order:
            if i == t and start is not None:
                self._wait(t, start)
            elif i == t:
                self._run("compute", t)
            elif given.comm[i]:
                self._wait(i, self._run("recompute", i))
            else:
                self._run("recompute", i)
            for j in sorted({*given.inputs[i], i}):
                if last[j] == i and run.get(j, self.kept.get(j)) == t:
                    self._add(COMPUTE, "release", j, (j,), ())
        for j in sorted(j for j, until in self.kept.items() if until == t and j not in last):
            self._add(COMPUTE, "release", j, (j,), ())

    def _run(self, do: Do, i: int) -> int:
        """On the communication lane after all that the compute lane has done; there, lane order says enough."""
        lane = COMM if self.given.comm[i] else COMPUTE
        after = (self.latest[COMPUTE],) if lane == COMM and COMPUTE in self.latest else ()
        return self._add(lane, do, i, (i,), after)

    def _wait(self, i: int, start: int) -> None:
        self._add(COMPUTE, "collective_wait", i, (), (start,))

    def _add(self, lane: str, do: Do, op: int, data: tuple[int, ...], after: tuple[int, ...]) -> int:
        name, size = len(self.actions), sum(self.given.size[i] for i in data)
        self.actions.append(Action(id=name, lane=lane, do=do, op=op, data=data, bytes=size, after=after))
        self.latest[lane] = name
        return name
