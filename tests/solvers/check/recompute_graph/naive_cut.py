"""Plans as points of the cut relaxation: what every column stands for, counted one by one; random problems and shapes.

Nothing here knows a row: only what the README of solvers/recompute/graph says that a column means.
"""

import random
from collections.abc import Iterator
from itertools import product

from msgspec.structs import replace

from solvers.check.recompute_graph.cut import Shape
from solvers.ir import RecomputeGraphPlan, RecomputeGraphProblem, RecomputeOp

Sets = list[set[int]]


def sets_of(problem: RecomputeGraphProblem, plan: RecomputeGraphPlan) -> tuple[Sets, Sets]:
    """R and S by stage; S has one stage more, in which nothing is kept."""
    compute: Sets = [set() for _ in problem.ops]
    keep: Sets = [set() for _ in range(len(problem.ops) + 1)]
    for t, i in plan.compute:
        compute[t].add(i)
    for t, i in plan.keep:
        keep[t].add(i)
    return compute, keep


def plan_of(compute: Sets, keep: Sets) -> RecomputeGraphPlan:
    """R and S as a decision."""
    return RecomputeGraphPlan(
        compute=tuple((t, i) for t, run in enumerate(compute) for i in sorted(run)),
        keep=tuple((t, i) for t, held in enumerate(keep) for i in sorted(held)),
    )


def cleaned(problem: RecomputeGraphProblem, compute: Sets, keep: Sets) -> tuple[Sets, Sets]:
    """What is left of a plan without all that no later computation reads."""
    left: Sets = [set() for _ in compute]
    held: Sets = [set() for _ in keep]
    wanted: set[int] = set()
    for t in reversed(range(len(compute))):
        for i in sorted(compute[t], reverse=True):
            if i == t or i in wanted:
                left[t].add(i)
                wanted = wanted - {i} | set(problem.ops[i].inputs)
        held[t] = set(wanted)
    return left, held


class Point:
    """One plan seen through one shape: `value(key)` of any column, whether it exists or not."""

    def __init__(self, problem: RecomputeGraphProblem, shape: Shape, compute: Sets, keep: Sets) -> None:
        self.ops, self.shape, self.compute, self.keep = problem.ops, shape, compute, keep
        self.users = [[u for u, op in enumerate(self.ops) if i in op.inputs] for i in range(len(self.ops))]

    def value(self, key: str) -> int:
        """The number that the column stands for in this plan."""
        family, *numbers = key.split("/")
        found: int = getattr(self, f"_{family}")(*map(int, numbers))
        return found

    def deadline(self, x: int, i: int) -> int:
        """The first user behind x, or else the latest of the deadlines of users that may run again; −1 without any."""
        behind = [u for u in self.users[i] if u > x]
        again = (self.deadline(x, u) for u in self.users[i] if self.ops[u].replay)
        return behind[0] if behind else max(again, default=-1)

    def first_behind(self, x: int, i: int) -> int | None:
        """The stage in which op i, not in memory behind x, is first computed again; None if it is not in time."""
        if i in self.keep[x + 1]:
            return None
        until = self.deadline(x, i)
        stage = next((t for t in range(x + 1, until + 1) if i in self.compute[t]), None)
        return None if stage == until and self.ops[until].comm else stage

    def _members(self, g: int, k: int) -> list[int]:
        return [layer[k] for layer in self.shape.groups[g]]

    def _s(self, t: int, i: int) -> int:
        return int(i in self.keep[t])

    def _r(self, t: int, i: int) -> int:
        return int(i in self.compute[t])

    def _y(self, g: int, k: int) -> int:
        return sum(self.first_behind(self.shape.cut, i) is not None for i in self._members(g, k))

    def _z(self, g: int, k: int) -> int:
        return sum(i in self.keep[self.shape.cut + 1] for i in self._members(g, k)) + self._y(g, k)

    def _h(self, g: int, k: int, zone: int) -> int:
        start = self.shape.zones[zone - 1] if zone else self.shape.cut
        stages = [self.first_behind(self.shape.cut, i) for i in self._members(g, k)]
        return sum(t is not None and start < t <= self.shape.zones[zone] and self.ops[t].comm for t in stages)

    def _e(self, g: int, k: int) -> int:
        stages = [t for t in range(self.shape.first, self.shape.cut + 1) if not self.ops[t].comm]
        return sum(any(i in self.compute[t] for t in stages) for i in self._members(g, k))

    def _q(self, g: int, k: int, t: int) -> int:
        return sum(i in self.compute[t] for i in self._members(g, k))

    def _a(self, p: int, i: int) -> int:
        return int(self.first_behind(p, i) is not None)


def column_keys(problem: RecomputeGraphProblem, shape: Shape) -> Iterator[str]:
    """The keys of every column that there could be."""
    for i in sorted(shape.explicit):
        yield from (f"s/{t}/{i}" for t in range(max(i + 1, shape.first), shape.last + 2))
        yield from (f"r/{t}/{i}" for t in range(max(i + 1, shape.first), shape.last + 1))
        yield from (f"a/{p}/{i}" for p in sorted(shape.peaks) if i <= p)
    for g, k in _classes(shape):
        yield from (f"{family}/{g}/{k}" for family in ("yze" if shape.first < shape.cut else "yz"))
        yield from (f"h/{g}/{k}/{zone}" for zone in range(len(shape.zones)))
        if shape.first < shape.cut:
            yield from (f"q/{g}/{k}/{t}" for t in range(shape.first, shape.cut + 1) if problem.ops[t].comm)


def row_keys(problem: RecomputeGraphProblem, shape: Shape) -> Iterator[str]:
    """The keys of every row that there could be, and of many that there are not."""
    stages = range(len(problem.ops))
    explicit = sorted(shape.explicit)
    for g, k in _classes(shape):
        yield from (f"{family}/{g}/{k}" for family in ("need", "own", "hide"))
        yield from (f"input/{g}/{k}/{j}" for j in range(len(shape.groups[g][0])))
    for t, i in product(stages, explicit):
        yield from (f"{family}/{t}/{i}" for family in ("keep", "once", "read", "later", "again"))
        yield from (f"{family}/{t}/{i}/{j}" for family in ("from", "closed") for j in problem.ops[i].inputs)
    yield from (f"{family}/{t}" for family in ("window", "memory") for t in stages)


def _classes(shape: Shape) -> Iterator[tuple[int, int]]:
    for g, layers in enumerate(shape.groups):
        yield from ((g, k) for k in range(len(layers[0]) if layers else 0))


def held(source: random.Random, problem: RecomputeGraphProblem) -> RecomputeGraphProblem:
    """The problem with some ops, or all of the first stages, that run once only."""
    share = source.choice([0.1, 0.3, 0.6])
    ops = tuple(replace(op, replay=source.random() >= share) for op in problem.ops)
    return replace(problem, ops=ops, replays_from=source.choice([0, 0, source.randrange(len(ops))]))


def random_problem(source: random.Random) -> RecomputeGraphProblem:
    """A tiny training graph: alike layers or any ops, then backward ops that read the last one and some before."""
    layers, size = source.choice([(1, 3), (1, 4), (2, 1), (2, 2), (3, 1), (2, 3), (3, 2)])
    template = [([j for j in range(k) if source.random() < 0.5], _op(source)) for k in range(size)]
    ops: list[RecomputeOp] = []
    for number in range(layers):
        start = number * size
        for k, (inner, (time, weight, comm)) in enumerate(template):
            reads = {start + j for j in inner} | ({start - 1} if k == 0 and number else set())
            alike = source.random() < 0.8
            ops.append(_made(source, reads, (time, weight, comm) if alike else _op(source)))
    for t in range(len(ops), len(ops) + source.randint(1, 4)):
        reads = {source.choice([t - 1, t - 1, source.randrange(t)])} | {j for j in range(t) if source.random() < 0.25}
        ops.append(_made(source, reads, _op(source)))
    return RecomputeGraphProblem(name="tiny", budget_bytes=0, static_bytes=source.randint(0, 2), ops=tuple(ops))


def _op(source: random.Random) -> tuple[int, int, bool]:
    comm = source.random() < 0.35
    return source.randint(3 if comm else 0, 9 if comm else 4), source.randint(0, 5), comm


def _made(source: random.Random, reads: set[int], drawn: tuple[int, int, bool]) -> RecomputeOp:
    time, weight, comm = drawn
    return RecomputeOp(name="op", time_us=time, output_bytes=weight, inputs=tuple(sorted(reads)), comm=comm)


def random_sets(source: random.Random, problem: RecomputeGraphProblem) -> tuple[Sets, Sets]:
    """R and S of a plan that is valid where memory allows: random recomputations, and what they need is kept."""
    count, density = len(problem.ops), source.choice([0.1, 0.3, 0.6])
    compute = [_again(source, problem, t, density) | {t} for t in range(count)]
    keep: Sets = [set() for _ in range(count + 1)]
    latest: dict[int, int] = {}
    for t in range(count):
        for i in sorted(compute[t]):
            for j in problem.ops[i].inputs:
                for s in range(latest[j] + 1, t + 1):
                    keep[s].add(j)
            latest[i] = t
    for t in range(1, count):  # and some that nothing reads
        lost = (keep[t - 1] | compute[t - 1]) - keep[t] - compute[t]
        keep[t] |= {i for i in lost if source.random() < 0.15}
    return compute, keep


def _again(source: random.Random, problem: RecomputeGraphProblem, t: int, density: float) -> set[int]:
    """What is recomputed in stage t: in a communication it fits, and the communication's inputs are there already."""
    stage, room, found = problem.ops[t], problem.ops[t].time_us, set()
    for i in source.sample(range(t), t):
        op = problem.ops[i]
        hidden = not op.comm and op.time_us <= room and i not in stage.inputs
        drawn = source.random() < density * (2 if stage.comm else 1) and (hidden or not stage.comm)
        if drawn and op.replay and t >= problem.replays_from:
            found.add(i)
            room -= op.time_us
    return found


def random_shape(source: random.Random, problem: RecomputeGraphProblem, whole: bool) -> Shape:
    """Any shape that fits; `whole`: all that can be explicit or in a group is."""
    count = len(problem.ops)
    cut = source.randrange(count)
    first, last = source.choice([cut, source.randint(0, cut)]), source.randint(cut, count - 1)
    early = [i for i in range(first) if whole or source.random() < 0.7]
    groups: list[tuple[tuple[int, ...], ...]] = []
    if source.random() < 0.5:
        source.shuffle(early)
    grouped = early[: source.choice([0, *[len(early)] * 4])]
    left = list(grouped)
    while left:
        size = source.randint(1, len(left))
        number = source.randint(1, len(left) // size)
        groups.append(tuple(tuple(left[n * size : (n + 1) * size]) for n in range(number)))
        left = left[size * number :]
    rest = [i for i in range(last + 1) if i not in grouped]
    zones = [t for t in range(cut + 1, count) if t == count - 1 or source.random() < 0.4]
    return Shape(
        cut=cut,
        first=first,
        last=last,
        explicit=frozenset(i for i in rest if whole or source.random() < 0.8),
        groups=tuple(groups),
        zones=tuple(zones),
        peaks=frozenset(p for p in range(first, last + 1) if source.random() < 0.4),
    )
