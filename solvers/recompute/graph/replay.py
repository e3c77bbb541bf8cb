"""The exact meaning of a `recompute-graph` plan: the judge's recursion, measured in milliseconds.

A plan is few *runs*: in stage t op i is computed, and kept at the start of the stages t+1 … until. Every solver of this
room measures its plans with it; the independent checker has its own recursion.

One file: runs, the two forms that plans have, and the pass that measures them share what a run is.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from solvers.ir.recompute import RecomputeGraphPlan, RecomputeGraphProblem

Sets = Sequence[Collection[int]]
"""Op indices by stage."""

MOST_PAIRS = 50_000
"""Pairs of a stage and a kept op up to which a plan lists them, about a megabyte of JSON."""
Runs = Sequence[Mapping[int, int]]
"""By stage t: op i → the last stage at whose start it is still kept from this run; t itself where it is not kept."""


@dataclass(frozen=True)
class Instance:
    """A problem as plain lists, indexed by op; `inputs` and `users` hold each op once, in ascending order."""

    time: list[int]
    size: list[int]
    comm: list[bool]
    inputs: list[tuple[int, ...]]
    users: list[tuple[int, ...]]
    static: int
    budget: int
    base: int
    replay: list[bool]
    replays_from: int

    def __len__(self) -> int:
        """The number of ops, which is the number of stages."""
        return len(self.time)

    def may_replay(self, t: int, i: int) -> bool:
        """Whether op i may run again in stage t > i, by what the problem says of the two alone."""
        return self.replay[i] and t >= self.replays_from


@dataclass(frozen=True)
class Replay:
    """What a plan does: its objective, its most bytes in use by stage, and the first violation, None for a valid plan.

    The peaks hold static memory and, during a communication, its output buffer; they are true of an invalid plan as
    well, as far as its data is there. `stage` is where the first violation stands.
    """

    objective_us: int
    peaks: list[int]
    violation: str | None
    stage: int | None

    @property
    def peak_bytes(self) -> int:
        """The most bytes in use in any stage."""
        return max(self.peaks)


def instance(problem: RecomputeGraphProblem) -> Instance:
    """The problem as plain lists."""
    inputs = [tuple(sorted(set(op.inputs))) for op in problem.ops]
    users: list[list[int]] = [[] for _ in problem.ops]
    for i, sources in enumerate(inputs):
        for j in sources:
            users[j].append(i)
    return Instance(
        time=[op.time_us for op in problem.ops],
        size=[op.output_bytes for op in problem.ops],
        comm=[op.comm for op in problem.ops],
        inputs=inputs,
        users=[tuple(found) for found in users],
        static=problem.static_bytes,
        budget=problem.budget_bytes,
        base=sum(op.time_us for op in problem.ops),
        replay=[op.replay for op in problem.ops],
        replays_from=problem.replays_from,
    )


def retained(given: Instance, recomputed: Sequence[Collection[int]]) -> list[dict[int, int]]:
    """The runs with the least retention: `recomputed[t]` are the ops i < t computed again in stage t (t is implied).

    Given what is computed, an output is kept from its latest computation to its last use before the next one: every
    entry of S is then necessary, so no other S needs less memory in any stage.
    """
    count = len(given)
    runs: list[dict[int, int]] = [{} for _ in range(count)]
    latest = [0] * count
    for t in range(count):
        run = runs[t]
        for i in sorted({t, *recomputed[t]}) if recomputed[t] else (t,):
            for j in given.inputs[i]:
                runs[latest[j]][j] = t
            run[i] = latest[i] = t
    return runs


def useful(given: Instance, recomputed: Sequence[Collection[int]]) -> list[set[int]]:
    """What is left of the recomputations without those that nothing reads before the next computation of the same op.

    Outputs of no bytes are kept instead. A valid plan stays valid, and neither its objective nor a level grows
    (README, M).
    """
    count = len(given)
    left: list[set[int]] = [set() for _ in range(count)]
    needed = [False] * count
    for t in reversed(range(count)):
        for i in sorted({t, *recomputed[t]}, reverse=True):
            if i == t or (needed[i] and given.size[i] > 0):
                needed[i] = False
                for j in given.inputs[i]:
                    needed[j] = True
                if i < t:
                    left[t].add(i)
    return left


def runs_of(given: Instance, compute: Sets, keep: Sets) -> tuple[list[dict[int, int]], str | None, int | None]:
    """R and S by stage as runs, with the first violation of their form and of S[t,i] ≤ R[t−1,i] + S[t−1,i].

    What is kept out of nowhere is left out of the runs.
    """
    count = len(given)
    runs: list[dict[int, int]] = [{} for _ in range(count)]
    origin: dict[int, int] = {}
    violation, stage = None, None
    for t in range(count):
        held, run = set(keep[t]), set(compute[t])
        fault = _form_fault(t, held, run, held - origin.keys())
        if fault is not None and violation is None:
            violation, stage = fault, t
        held &= origin.keys()
        for i in held:
            runs[origin[i]][i] = t
        origin = {i: origin[i] for i in held}
        for i in run:
            if i <= t:
                runs[t][i] = origin[i] = t
    return runs, violation, stage


def _form_fault(t: int, held: set[int], run: set[int], lost: set[int]) -> str | None:
    if t not in run:
        return f"stage {t} does not compute op {t}"
    if max(run) > t:
        return f"stage {t} computes op {max(run)}, whose first stage is {max(run)}"
    if held & run:
        return f"stage {t} both keeps and computes op {min(held & run)}"
    return f"stage {t} keeps op {min(lost)}, which stage {t - 1} neither kept nor computed" if lost else None


def replay(problem: RecomputeGraphProblem | Instance, compute: Sets, keep: Sets | None = None) -> Replay:
    """Measure R and S given by stage; `keep` None means the least retention (`compute[t]` may leave out t then)."""
    given = problem if isinstance(problem, Instance) else instance(problem)
    if keep is None:
        return replay_runs(given, retained(given, compute))
    runs, violation, stage = runs_of(given, compute, keep)
    found = replay_runs(given, runs)
    if violation is None or stage is None or (found.stage is not None and found.stage < stage):
        return found
    return Replay(found.objective_us, found.peaks, violation, stage)


def replay_runs(given: Instance, runs: Runs) -> Replay:
    """Measure runs, in time linear in their number and inputs (722 ops: about 2 ms)."""
    return _Replay(given, runs).result()


class _Replay:
    """One pass over the stages: `kept` maps what is kept at the stage's start to the last stage that it is kept in."""

    def __init__(self, given: Instance, runs: Runs) -> None:
        self.given, self.runs = given, runs
        self.kept: dict[int, int] = {}
        self.kept_bytes = given.static
        self.ending: list[list[int]] = [[] for _ in range(len(given) + 1)]
        self.violation: str | None = None
        self.stage: int | None = None

    def result(self) -> Replay:
        """All stages in order."""
        given = self.given
        objective, peaks = given.base, []
        for t, run in enumerate(self.runs):
            if len(run) <= 1:
                peaks.append(self._alone(t, run))
                self._advance(t, run)
                continue
            order = sorted(run)
            again = sum(given.time[i] for i in order) - given.time[t]
            if given.comm[t]:
                self._window(t, order, again)
            else:
                objective += again
            self._data(t, order, run)
            peaks.append(self._peak(t, order, run))
            self._advance(t, run)
        return Replay(objective, peaks, self.violation, self.stage)

    def _alone(self, t: int, run: Mapping[int, int]) -> int:
        """The most bytes in use in a stage that computes nothing again."""
        given, kept = self.given, self.kept
        for j in given.inputs[t]:
            if j not in kept and (given.comm[t] or j not in run):
                self._fault(t, f"stage {t} computes op {t}, whose input {j} is not there")
        needed = self.kept_bytes + given.size[t]
        if needed > given.budget:
            self._fault(t, f"stage {t}, op {t} has {needed} bytes in use, budget {given.budget}")
        return needed

    def _fault(self, t: int, sentence: str) -> None:
        if self.violation is None:
            self.violation, self.stage = sentence, t

    def _window(self, t: int, order: list[int], again: int) -> None:
        """In a comm stage no comm op is recomputed, and the recomputation fits into the communication."""
        given = self.given
        if again > given.time[t]:
            self._fault(t, f"stage {t} recomputes for {again} us during a communication of {given.time[t]} us")
        for i in order[:-1]:
            if given.comm[i]:
                self._fault(t, f"stage {t} recomputes op {i}, a communication, during a communication")

    def _data(self, t: int, order: list[int], run: Mapping[int, int]) -> None:
        """Inputs are kept, or computed in the stage; a communication's own inputs are kept when it begins."""
        kept, given = self.kept, self.given
        for i in order:
            if i < t and not given.may_replay(t, i):
                self._fault(t, f"stage {t} computes op {i} again, which must not run twice there")
            if i in kept and i < t:
                self._fault(t, f"stage {t} both keeps and computes op {i}")
            own = given.comm[t] and i == t
            for j in given.inputs[i]:
                if j not in kept and (own or j not in run):
                    self._fault(t, f"stage {t} computes op {i}, whose input {j} is not there")

    def _peak(self, t: int, order: list[int], run: Mapping[int, int]) -> int:
        """U right after each allocation and before its frees, a communication's output counted from its start."""
        given, kept, size = self.given, self.kept, self.given.size
        level = peak = self.kept_bytes
        buffer = size[t] if given.comm[t] else 0
        last = {j: i for i in order for j in (*given.inputs[i], i)}
        for i in order:
            level += size[i]
            needed = level + buffer if i < t else level
            peak = max(peak, needed)
            if needed > given.budget:
                self._fault(t, f"stage {t}, op {i} has {needed} bytes in use, budget {given.budget}")
            for j in (*given.inputs[i], i):
                until = run[j] if j in run else kept.get(j)
                if until == t and last[j] == i:
                    level -= size[j]
        return peak

    def _advance(self, t: int, run: Mapping[int, int]) -> None:
        """From the start of stage t to the start of stage t + 1."""
        kept, size = self.kept, self.given.size
        for i in self.ending[t]:
            del kept[i]
            self.kept_bytes -= size[i]
        for i, until in run.items():
            if until > t and i not in kept:
                kept[i] = until
                self.kept_bytes += size[i]
                self.ending[until].append(i)


def sets_of(runs: Runs) -> tuple[list[set[int]], list[set[int]]]:
    """R and S by stage."""
    compute: list[set[int]] = [set(run) for run in runs]
    keep: list[set[int]] = [set() for _ in runs]
    for t, run in enumerate(runs):
        for i, until in run.items():
            for s in range(t + 1, until + 1):
                keep[s].add(i)
    return compute, keep


def plan_of(runs: Runs) -> RecomputeGraphPlan:
    """The runs as a decision, pairs in order of stage and op; what is kept as runs where there are many pairs."""
    if sum(until - t for t, run in enumerate(runs) for until in run.values()) <= MOST_PAIRS:
        return plan_pairs(*sets_of(runs))
    return RecomputeGraphPlan(
        compute=tuple((t, i) for t, run in enumerate(runs) for i in sorted(run)),
        keep_runs=tuple(
            (i, t + 1, until) for t, run in enumerate(runs) for i, until in sorted(run.items()) if until > t
        ),
    )


def plan_pairs(compute: Sets, keep: Sets) -> RecomputeGraphPlan:
    """R and S by stage as a decision, pairs in order of stage and op."""
    return RecomputeGraphPlan(
        compute=tuple((t, i) for t, run in enumerate(compute) for i in sorted(run)),
        keep=tuple((t, i) for t, held in enumerate(keep) for i in sorted(held)),
    )


def plan_from_recomputations(problem: RecomputeGraphProblem | Instance, recomputed: Sets) -> RecomputeGraphPlan:
    """The decision that computes `recomputed[t]` again in stage t and keeps the least (see `retained`)."""
    given = problem if isinstance(problem, Instance) else instance(problem)
    return plan_of(retained(given, recomputed))
