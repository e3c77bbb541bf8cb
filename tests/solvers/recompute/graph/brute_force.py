"""The meaning of a recompute-graph plan (formats.md 4) as walks through sets of resident outputs, and tiny instances.

Nothing here knows R, S, U, F or runs: a walk computes an op or not, then drops or holds what that op touched. The order
of drops is free, so dropping right after the last touch loses nothing.
"""

import random
from functools import cache

from msgspec.structs import replace

from solvers.ir import RecomputeGraphProblem, RecomputeOp

State = tuple[int, int, int]
"""(resident ops as bits, time hidden in the running communication, ops recomputed so far as bits, where it matters)."""
Walks = dict[State, int]
"""State → the least time paid for it."""


@cache
def optimum(problem: RecomputeGraphProblem, overlap: bool = True, once: bool = False) -> int | None:
    """The least objective of any plan; None where no plan is valid.

    overlap False: only plans that recompute nothing during communications; once: only those that recompute no op twice.
    """
    walks: Walks = {(0, 0, 0): 0}
    walker = _Walker(problem, overlap, once)
    for t in range(len(problem.ops)):
        for i in range(t + 1):
            walks = walker.step(walks, t, i)
        ended: Walks = {}
        for (resident, _, again), paid in walks.items():
            _least(ended, (resident, 0, again), paid)
        walks = ended
    return walker.base + min(walks.values()) if walks else None


def least_feasible_budget(problem: RecomputeGraphProblem) -> int:
    """The least budget with any plan, by bisection between 0 and everything at once."""
    low, high = -1, problem.static_bytes + sum(op.output_bytes for op in problem.ops)
    while high - low > 1:
        middle = (low + high) // 2
        feasible = optimum(replace(problem, budget_bytes=middle)) is not None
        low, high = (low, middle) if feasible else (middle, high)
    return high


class _Walker:
    """The walks of one problem; `last[i]` is the latest op that depends on op i, directly or not."""

    def __init__(self, problem: RecomputeGraphProblem, overlap: bool, once: bool) -> None:
        self.overlap, self.once = overlap, once
        self.replays_from = problem.replays_from
        self.ops, self.room = problem.ops, problem.budget_bytes - problem.static_bytes
        self.base = sum(op.time_us for op in problem.ops)
        self.reads = [sum(1 << j for j in set(op.inputs)) for op in self.ops]
        self.last = list(range(len(self.ops)))
        for i in reversed(range(len(self.ops))):
            for j in self.ops[i].inputs:
                self.last[j] = max(self.last[j], self.last[i])
        self.bytes: dict[int, int] = {}

    def step(self, walks: Walks, t: int, i: int) -> Walks:
        """Stage t comes to op i: run it or pass it by (op t must run), and drop some of what it touched."""
        after: Walks = {}
        for (resident, hidden, again), paid in walks.items():
            if i < t:
                _least(after, (resident, hidden, again), paid)
            run = None if again >> i & 1 else self._run(t, i, resident, hidden, paid)
            if run is not None:
                marked = again | 1 << i if self.once and i < t else again
                for left in self._drops(resident | 1 << i, self.reads[i] | 1 << i, t, i):
                    _least(after, (left, run[0], marked), run[1])
        return after

    def _run(self, t: int, i: int, resident: int, hidden: int, paid: int) -> tuple[int, int] | None:
        """(hidden, paid) once op i has run in stage t; None where it may not or need not."""
        op, window = self.ops[i], self.ops[t].comm
        if resident >> i & 1 or self.reads[i] & ~resident or (i < t and self.last[i] < t):
            return None
        if i < t and (not op.replay or t < self.replays_from):
            return None
        buffer = self.ops[t].output_bytes if window and i < t else 0
        if self._weight(resident | 1 << i) + buffer > self.room:
            return None
        if i == t:
            return hidden, paid
        if not window:
            return hidden, paid + op.time_us
        late = hidden + op.time_us > self.ops[t].time_us
        if not self.overlap or op.comm or self.reads[t] >> i & 1 or late:
            return None  # a communication's inputs are there when it begins, so never computed while it runs
        return hidden + op.time_us, paid

    def _drops(self, resident: int, touched: int, t: int, i: int) -> list[int]:
        """What may be left of the residents; what nobody can need any more goes."""
        lefts = [resident]
        for d in range(touched.bit_length()):
            if touched >> d & 1:
                dropped = [left & ~(1 << d) for left in lefts]
                needed = self.last[d] > t or (self.last[d] == t and i < t)
                lefts = lefts + dropped if needed else dropped
        return lefts

    def _weight(self, resident: int) -> int:
        if resident not in self.bytes:
            self.bytes[resident] = sum(op.output_bytes for i, op in enumerate(self.ops) if resident >> i & 1)
        return self.bytes[resident]


def _least(walks: Walks, state: State, paid: int) -> None:
    if paid < walks.get(state, paid + 1):
        walks[state] = paid


def everything_kept(problem: RecomputeGraphProblem) -> int:
    """The peak when each output is kept from its op to its last reader."""
    last = [max([i, *(u for u, op in enumerate(problem.ops) if i in op.inputs)]) for i in range(len(problem.ops))]
    levels = [
        sum(op.output_bytes for i, op in enumerate(problem.ops) if i <= t <= last[i]) for t in range(len(problem.ops))
    ]
    return problem.static_bytes + max(levels)


def layered(seed: int, layers: int) -> RecomputeGraphProblem:
    """Forward and backward of tiny layers (product, all-reduce, activation), 6 ops each and one more; times differ."""
    source = random.Random(f"layered {seed} {layers}")
    times, sizes = [source.randint(1, 6) for _ in range(3)], [source.randint(1, 4) for _ in range(3)]
    ops: list[RecomputeOp] = []

    def add(time_us: int, size: int, *inputs: int, comm: bool = False) -> int:
        ops.append(RecomputeOp(name=f"op{len(ops)}", time_us=time_us, output_bytes=size, inputs=inputs, comm=comm))
        return len(ops) - 1

    x, saved = add(1, sizes[2]), []
    for _ in range(layers):
        product = add(times[0], sizes[0], x)
        reduced = add(source.randint(2, 7), sizes[0], product, comm=True)
        saved.append((x, reduced))
        x = add(times[2], sizes[2], reduced)
    gradient = x
    for below, reduced in reversed(saved):
        activation = add(times[2], sizes[0], *sorted({gradient, reduced}))
        wire = add(source.randint(2, 7), sizes[0], activation, comm=True)
        gradient = add(2 * times[0], sizes[2], below, wire)
    return _budgeted(source, seed, ops)


def general(seed: int) -> RecomputeGraphProblem:
    """A random graph of 7 to 12 ops, each reading one to three earlier ones, old ones too; a third communicate."""
    source = random.Random(f"general {seed}")
    ops = []
    for t in range(source.randint(7, 12)):
        reads = {source.randrange(t) for _ in range(source.randint(1, 3))} if t else set()
        ops.append(
            RecomputeOp(
                name=f"op{t}",
                time_us=source.randint(0, 7),
                output_bytes=source.randint(0, 5),
                inputs=tuple(sorted(reads)),
                comm=source.random() < 0.33,
            )
        )
    return _budgeted(source, seed, ops)


def _budgeted(source: random.Random, seed: int, ops: list[RecomputeOp]) -> RecomputeGraphProblem:
    """A budget in the lower third between the largest working set (at times less) and everything kept."""
    ample = RecomputeGraphProblem(
        name=f"random-{seed}", budget_bytes=0, static_bytes=source.randint(0, 3), ops=tuple(ops)
    )
    most = everything_kept(ample)
    working = max(op.output_bytes + sum(ops[j].output_bytes for j in set(op.inputs)) for op in ops)
    least = ample.static_bytes + working
    return replace(ample, budget_bytes=source.randint(least - (seed % 9 == 0), max(least, (2 * least + most) // 3)))


def held(seed: int) -> RecomputeGraphProblem:
    """One of the same instances in which some ops, or all of the first stages, run once only."""
    source, problem = random.Random(f"held {seed}"), general(seed) if seed % 2 else layered(seed, 2)
    share = source.choice([0.1, 0.2, 0.4])
    ops = tuple(replace(op, replay=source.random() >= share) for op in problem.ops)
    more, first = source.randint(0, 2), source.choice([0, 0, source.randrange(len(ops))])
    return replace(problem, ops=ops, replays_from=first, budget_bytes=problem.budget_bytes + more)


def random_problem(seed: int) -> RecomputeGraphProblem:
    """Tiny instances of all sorts, by seed."""
    return general(seed) if seed % 2 else layered(seed, 3 if seed % 8 == 0 else 2)
