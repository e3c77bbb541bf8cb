"""The best plan of a tiny `recompute-graph` problem, by walking all sets of outputs that may be in memory (4).

A walk runs an op in a stage or passes it by, then drops or holds what that op touched. What is worse in everything than
another walk is left. Where there are too many walks, only the closed forms are known.
"""

import math
from collections.abc import Iterator
from itertools import combinations

from solvers.check.judge import Range
from solvers.ir.recompute import RecomputeGraphProblem

MOST_STEPS = 400_000
"""Steps of walks; beyond, the search is given up."""
Walks = dict[tuple[int, int], int]
"""(outputs in memory as bits, µs hidden in the running communication) → the least µs paid."""


class _TooMany(Exception):
    """More walks than are looked at."""


def best_us(problem: RecomputeGraphProblem, claimed: float | None) -> Range:
    """The optimum, twice; where that takes too long, infinite only if some op does not fit beside its inputs."""
    for t, op in enumerate(problem.ops):
        if problem.static_bytes + sum(problem.ops[i].output_bytes for i in {t, *op.inputs}) > problem.budget_bytes:
            return math.inf, math.inf
    try:
        best = _Walker(problem).best_us()
    except _TooMany:
        return 0.0, math.inf
    return best, best


class _Walker:
    """The walks of one problem; `last[i]` is the latest op that depends on op i, directly or not."""

    def __init__(self, problem: RecomputeGraphProblem) -> None:
        self.ops, self.problem = problem.ops, problem
        self.room = problem.budget_bytes - problem.static_bytes
        self.reads = [sum(1 << j for j in set(op.inputs)) for op in self.ops]
        self.last = list(range(len(self.ops)))
        for i in reversed(range(len(self.ops))):
            for j in self.ops[i].inputs:
                self.last[j] = max(self.last[j], self.last[i])
        self.sizes: dict[int, int] = {}
        self.steps = 0

    def best_us(self) -> float:
        """The least time of any plan; infinite where there is none."""
        walks: Walks = {(0, 0): 0}
        for t in range(len(self.ops)):
            for i in range(t + 1):
                walks = self._step(walks, t, i)
            ended: Walks = {}
            for (resident, _), paid in walks.items():
                ended[resident, 0] = min(paid, ended.get((resident, 0), paid))
            walks = ended
        return sum(op.time_us for op in self.ops) + min(walks.values(), default=math.inf)

    def _step(self, walks: Walks, t: int, i: int) -> Walks:
        """Stage t comes to op i: run it, or pass it by (op t must run)."""
        after: Walks = {}
        if i < t and (self.last[i] < t or not self._may_run(t, i)):
            return walks
        for (resident, hidden), paid in walks.items():
            if i < t:
                _least(after, (resident, hidden), paid)
            ran = self._run(t, i, resident, hidden, paid)
            if ran is not None:
                for left in self._drops(resident | 1 << i, t, i):
                    _least(after, (left, ran[0]), ran[1])
        self.steps += len(after)
        if self.steps > MOST_STEPS:
            raise _TooMany
        return after

    def _may_run(self, t: int, i: int) -> bool:
        op, stage = self.ops[i], self.ops[t]
        if not op.replay or t < self.problem.replays_from:
            return False
        own = self.reads[t] >> i & 1  # a communication's inputs are there when it begins
        return not stage.comm or (not op.comm and not own and op.time_us <= stage.time_us)

    def _run(self, t: int, i: int, resident: int, hidden: int, paid: int) -> tuple[int, int] | None:
        """(hidden, paid) once op i has run in stage t; None where it may not or need not."""
        op, stage = self.ops[i], self.ops[t]
        if resident >> i & 1 or self.reads[i] & ~resident:
            return None
        level = self._bytes(resident) + op.output_bytes
        if i < t and stage.comm:
            level += stage.output_bytes
            hidden += op.time_us
            if hidden > stage.time_us:
                return None
        elif i < t:
            paid += op.time_us
        return None if level > self.room else (hidden, paid)

    def _bytes(self, resident: int) -> int:
        if resident not in self.sizes:
            self.sizes[resident] = sum(op.output_bytes for i, op in enumerate(self.ops) if resident >> i & 1)
        return self.sizes[resident]

    def _drops(self, resident: int, t: int, i: int) -> Iterator[int]:
        """What may be in memory behind op i in stage t: of it and its inputs, those that have a use may stay or go."""
        useful, useless = [], 0
        for j in {*self.ops[i].inputs, i}:
            if self.last[j] > t or (self.last[j] == t and i < t):
                useful += [j] if self.ops[j].output_bytes else []
            else:
                useless |= 1 << j
        for count in range(len(useful) + 1):
            for gone in combinations(useful, count):
                yield resident & ~useless & ~sum(1 << j for j in gone)


def _least(walks: Walks, walk: tuple[int, int], paid: int) -> None:
    if paid < walks.get(walk, paid + 1):
        walks[walk] = paid
