"""From a joint plan to a schedule: what runs where, what leaves and returns, when memory is given back (README)."""

from collections.abc import Mapping
from itertools import accumulate

from solvers.ir.errors import InvalidProblem
from solvers.ir.joint import JointPlan, JointProblem
from solvers.ir.schedule import Action, Do, Schedule
from solvers.joint.draft import Away, Draft, Kept, draft_of, first_reader, kept_of, measure, present
from solvers.joint.given import Given, given_of

COMPUTE, COMM, OUT, IN = "0.compute", "0.comm", "0.out", "0.in"


def lower(problem: JointProblem, plan: JointPlan) -> Schedule:
    """The schedule of a plan, with the least retention: its timeline is the plan's, its memory at most the plan's.

    Raises `InvalidProblem` where the plan breaks a rule of its problem.
    """
    given = given_of(problem)
    draft = draft_of(given, plan)
    kept = kept_of(given, draft.again)
    violation = measure(given, draft, kept).violation
    if violation is not None:
        raise InvalidProblem(f"the plan is invalid ({violation}): check it with `bayplan check` before lowering")
    return _Lowering(given, draft, kept).schedule()


class _Lowering:
    """One pass over the stages; `there` maps what is in memory to the last stage that finds it there or away.

    What leaves is released in the order of its lane, right before the first stage that does not fit beside it or that
    it returns to: memory is awaited there by the plan, too.
    """

    def __init__(self, given: Given, draft: Draft, kept: Kept) -> None:
        self.given, self.draft, self.kept = given, draft, kept
        self.peaks = present(given, kept, draft.away)
        self.leaves: list[list[int]] = [[] for _ in range(len(given))]
        self.returns: list[list[int]] = [[] for _ in range(len(given))]
        self.reads: list[list[int]] = [[] for _ in range(len(given))]
        for number, away in enumerate(draft.away):
            reader = first_reader(kept, away)
            assert reader is not None  # the plan is valid
            self.leaves[away.out_after].append(number)
            self.returns[away.in_at].append(number)
            self.reads[reader].append(number)
        self.there: dict[int, int] = {}
        self.queue: list[int] = []
        self.sent: dict[int, int] = {}
        self.back: dict[int, int] = {}
        self.actions: list[Action] = []
        self.latest: dict[str, int] = {}

    def schedule(self) -> Schedule:
        """All stages in order."""
        for t, run in enumerate(self.kept.runs):
            self._make_room(t)
            for number in self.returns[t]:
                self.back[number] = self._add(IN, "swap_in", self._away(number).op, self._after_compute())
            self._stage(t, run)
            for number in self.leaves[t]:
                self.sent[number] = self._add(OUT, "swap_out", self._away(number).op, self._after_compute())
                self.queue.append(number)
            self.there = {i: until for i, until in {**self.there, **run}.items() if until > t}
        return Schedule(lanes=(COMPUTE, COMM, OUT, IN), actions=tuple(self.actions))

    def _away(self, number: int) -> Away:
        return self.draft.away[number]

    def _make_room(self, t: int) -> None:
        """The releases before stage t."""
        sizes = self.given.graph.size
        leaving = [0, *accumulate(sizes[self._away(number).op] for number in self.queue)]
        room = self.given.budget - self.peaks[t]
        due = next(count for count, gone in enumerate(leaving) if leaving[-1] - gone <= room)
        coming = [self.queue.index(number) + 1 for number in self.returns[t] if number in self.queue]
        due = max([due, *coming])
        for number in self.queue[:due]:
            self._add(COMPUTE, "release", self._away(number).op, (self.sent[number],))
        del self.queue[:due]

    def _stage(self, t: int, run: Mapping[int, int]) -> None:
        """As in `solvers.recompute.graph.lower`, behind what returns; recomputation runs inside its communication."""
        comm, order = self.given.graph.comm, sorted(run)
        inputs = self.given.graph.inputs
        last = {j: i for i in order for j in (*inputs[i], i)}
        arrivals = self._arrivals(t, any(comm[i] for i in order))
        start = self._run("collective_start", t, arrivals) if comm[t] else None
        for i in order:
            if i == t and start is not None:
                self._add(COMPUTE, "collective_wait", t, (start,))
            elif i == t:
                self._run("compute", t, arrivals)
            elif comm[i]:
                self._add(COMPUTE, "collective_wait", i, (self._run("recompute", i, arrivals),))
            else:
                self._run("recompute", i, arrivals)
            arrivals = ()
            for j in sorted({*inputs[i], i}):
                if last[j] == i and run.get(j, self.there.get(j)) == t:
                    self._add(COMPUTE, "release", j, ())

    def _arrivals(self, t: int, communicates: bool) -> tuple[int, ...]:
        """What the stage waits for on the link's lanes: all of it where communication takes turns with it."""
        found = [self.back[number] for number in self.reads[t]]
        if self.given.shared and communicates:
            found += [self.latest[lane] for lane in (OUT, IN) if lane in self.latest]
        return tuple(dict.fromkeys(found))

    def _run(self, do: Do, i: int, arrivals: tuple[int, ...]) -> int:
        """On the communication lane after all that the compute lane has done; there, lane order says enough."""
        comm = self.given.graph.comm[i]
        return self._add(COMM if comm else COMPUTE, do, i, (*(self._after_compute() if comm else ()), *arrivals))

    def _after_compute(self) -> tuple[int, ...]:
        return (self.latest[COMPUTE],) if COMPUTE in self.latest else ()

    def _add(self, lane: str, do: Do, op: int, after: tuple[int, ...]) -> int:
        name, held = len(self.actions), do != "collective_wait"
        data, size = ((op,), self.given.graph.size[op]) if held else ((), 0)
        self.actions.append(Action(id=name, lane=lane, do=do, op=op, data=data, bytes=size, after=after))
        self.latest[lane] = name
        return name
