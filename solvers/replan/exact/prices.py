"""Which stages want the same nodes, and whose layers all of them want: prices of both (README, proof 7).

A plan whose busiest node receives and sends at most so much is a mixture of pipelines that together take no more nodes
of each kind than there are, and no more layers than their owners can send. At any prices of nodes and of sent layers
the pipelines cost no more than all there is, and no pipeline costs less than the cheapest split that can end in time:
a knapsack. The prices come from a linear program over the splits known so far, the splits from the prices.

One file: the cheapest splits, the program and the whole plans that it finds are one argument.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csr_array

from solvers.replan.exact.bounds import IntArray, StageLimits
from solvers.replan.exact.market import NEVER, Market, Pattern
from solvers.replan.progress import Effort, Stop
from solvers.replan.transfer.owners import Interval, intervals

_UNIT = 2**24
"""Prices are counted in this part of a microbatch."""
_ROUNDS = 12
"""How often new splits are priced."""
_NEW = 8
"""Splits that one round adds at most."""
_NEAREST, _DEPTHS = 8, 12
"""Splits that whole pipelines are made of; depths whose cheapest split may be one of them."""
_MORE = 24
"""Depths looked at together once the first promise too little."""
_TOGETHER = 2**18
"""Entries of tables of splits filled together."""
_NODES = 10
"""Nodes of the search for whole pipelines."""
_WHOLE = 1e-6
"""A number this close to a whole one is one."""
_ENTRY_US, _SPLIT_US, _VAIN_US = 5, 600, 200_000
"""About what an entry of a program, a cheapest split, and a search for whole pipelines that finds none take."""

FloatArray = npt.NDArray[np.float64]
Layers = tuple[int, ...]


@dataclass(frozen=True)
class Within:
    """The pipelines that a plan may have: no stage fuller than `limits` say, the slowest within `limit_us`.

    `possible`: the most microbatches of each depth that is of use.
    """

    limits: StageLimits
    limit_us: int
    possible: Mapping[int, int]

    @property
    def widest(self) -> int:
        """No stage has more layers."""
        limits, deepest = self.limits, max(self.possible)
        return max(0, min(limits.fullest, max(limits.room(deepest, k, 1) for k in range(1, deepest + 1))))


@dataclass(frozen=True)
class Mixture:
    """Splits, microbatches, and how many pipelines of them, in fractions: what the prices do not exclude."""

    splits: tuple[tuple[Layers, int], ...]
    amounts: tuple[float, ...]

    @property
    def counted(self) -> float:
        """Its microbatches."""
        return sum(count * amount for (_, count), amount in zip(self.splits, self.amounts, strict=True))


class Splits:
    """The cheapest splits of one shape of pipelines after the other."""

    def __init__(self, within: Within, prices: IntArray) -> None:
        self.within, self.layers = within, within.limits.problem.layers
        self.widest = prices.shape[1] - 1
        held, own = np.indices((self.layers + 1, self.widest + 1))
        self._before, self._own = np.maximum(held - own, 0), own
        self._prices = np.where(held >= own, prices[self._before, own], NEVER)

    @cached_property
    def least(self) -> list[int]:
        """At p: no split over p stages is cheaper, however long it takes."""
        held = np.full(self.layers + 1, NEVER)
        held[0], least = 0, [NEVER]
        for _ in range(max(self.within.possible, default=0)):
            held = np.minimum((held[self._before] + self._prices).min(axis=1), NEVER)
            least.append(int(held[-1]))
        return least

    def price(self, layers: Layers) -> int:
        """What the stages of a split cost together."""
        held = np.cumsum(layers[::-1])
        return int(self._prices[held, layers[::-1]].clip(max=NEVER // len(layers)).sum())

    def cheapest(self, shapes: Sequence[tuple[int, int]]) -> Iterator[tuple[int, Callable[[], Layers]]]:
        """For depths and microbatches the least price of a split that the relaxation lets end in time, and the split.

        `NEVER` where there is none.
        """
        some = max(1, _TOGETHER // (len(self._before) * (self.widest + 1)))
        for start in range(0, len(shapes), some):
            yield from self._cheapest(shapes[start : start + some])

    def _cheapest(self, shapes: Sequence[tuple[int, int]]) -> Iterator[tuple[int, Callable[[], Layers]]]:
        """Of some at once: tables over the layers held by the last stages, [stages, shape, layers held]."""
        limits, held, deepest = self.within.limits, np.arange(self.layers + 1), max(depth for depth, _ in shapes)
        few = np.full((deepest, len(shapes), self.layers + 1), -1, dtype=np.int64)
        for number, (depth, microbatches) in enumerate(shapes):
            most = limits.paths.of(depth, microbatches).table(held, self.within.limit_us)
            bounds = limits.held(depth, microbatches, self.within.limit_us)
            if bounds is None:
                continue
            most = np.minimum(most, np.minimum(bounds.rooms[:, None], bounds.most[1:, None] - held))
            few[:depth, number] = np.where(held >= bounds.fewest[:-1, None], most, -1)
        wide = min(self.widest, max(int(few.max()), 0)) + 1
        before, own, prices = self._before[:, :wide], self._own[:, :wide], self._prices[:, :wide]
        tables = np.full((deepest + 1, len(shapes), self.layers + 1), NEVER, dtype=np.int64)
        tables[0, :, 0] = 0
        for k in range(deepest):
            each = np.where(own <= few[k][:, before], tables[k][:, before] + prices, NEVER)
            np.minimum(each.min(axis=2), NEVER, out=tables[k + 1])
        for number, (depth, _) in enumerate(shapes):
            yield int(tables[depth, number, -1]), partial(self._split, tables[:, number], few[:, number], depth)

    def _split(self, tables: IntArray, few: IntArray, depth: int) -> Layers:
        """The split behind the price of all layers."""
        split, held = list[int](), self.layers
        for k in range(depth - 1, -1, -1):
            before = self._before[held]
            own = int(
                np.where(self._own[held] <= few[k][before], tables[k][before] + self._prices[held], 2 * NEVER).argmin()
            )
            split.append(own)
            held -= own
        return tuple(split)


class Pricing:
    """Whether there is a plan of pipelines `within` whose busiest node receives and sends at most `load` bytes."""

    def __init__(self, market: Market, load: int, within: Within, stop: Stop, effort: Effort | None = None) -> None:
        self.market, self.load, self.within, self.stop = market, load, within, stop
        self.effort = effort or Effort()
        self.microbatches = market.problem.microbatches
        self.pool: dict[tuple[Layers, int], None] = {}

    def excluded(self, known: Sequence[tuple[Layers, int]]) -> Mixture | None:
        """None where prices exclude such plans; otherwise the mixture that they leave, perhaps of no use."""
        self.pool |= dict.fromkeys(known)
        mixture, nodes, sent = self._solved()
        for _ in range(_ROUNDS):
            if self.stop() or self.effort.over():
                break
            if not (worth := self.market.worth(nodes, sent, self.load)):  # nothing known keeps to the load: alike, then
                nodes = np.full_like(nodes, _UNIT)
                worth = self.market.worth(nodes, sent, self.load)
            splits = self._priced(nodes, sent)
            new = self._dear(splits, worth)
            if not new:
                return None
            fresh = [shape for shape in new if shape not in self.pool]
            if not fresh:
                break
            self.pool |= dict.fromkeys(fresh)
            mixture, nodes, sent = self._solved()
            if mixture.counted >= self.microbatches:
                break
        self._priced(nodes, sent)
        return mixture

    def nearest(self, most_within: Callable[[Layers], int]) -> list[tuple[Layers, int]]:
        """Of the splits known and the cheapest ones of some depths those that lose least at the last prices.

        A split loses what it costs beyond the microbatches that it counts, as `most_within` says. Mixtures are made of
        those that lose nothing; whole pipelines need some that lose a little to use up nodes and owners.
        """
        counted = [(layers, most) for layers in self._candidates if (most := most_within(layers)) > 0]
        price = Splits(self.within, self._stages).price
        return sorted(counted, key=lambda shape: price(shape[0]) - shape[1] * _UNIT)[:_NEAREST]

    @cached_property
    def _candidates(self) -> dict[Layers, None]:
        """Splits known, and the cheapest of depths whose pipelines lose least."""
        splits, possible = Splits(self.within, self._stages), self.within.possible
        some = dict.fromkeys(layers for layers, _ in self.pool)
        depths = sorted(possible, key=lambda depth: splits.least[depth] - possible[depth] * _UNIT)[:_DEPTHS]
        self.effort.spend(_SPLIT_US * len(depths))
        for price, split in splits.cheapest([(depth, possible[depth]) for depth in depths]):
            if price < NEVER:
                some[split()] = None
        return some

    def _priced(self, nodes: IntArray, sent: IntArray) -> Splits:
        self._stages = self.market.stage_prices(nodes, sent, self.load, self.within.widest)
        return Splits(self.within, self._stages)

    def _dear(self, splits: Splits, worth: int) -> list[tuple[Layers, int]]:
        """Shapes so cheap that all there is could pay for enough of them, with their splits; none: it cannot."""
        possible, count, waiting = self.within.possible, self.microbatches, list[tuple[int, int]]()
        for depth in sorted(possible, key=lambda depth: splits.least[depth] / possible[depth]):
            # where a split costs nothing this is 0, and a pipeline still has a microbatch
            fewest = max(1, (count * splits.least[depth] - 1) // worth + 1)
            if fewest <= possible[depth]:
                waiting.append((depth, fewest))
        found, some = list[tuple[Layers, int]](), _NEW
        while waiting and len(found) < _NEW:
            found += self._of(splits, worth, waiting[:some])
            waiting, some = waiting[some:], _MORE
        return found[:_NEW]

    def _of(self, splits: Splits, worth: int, shapes: Sequence[tuple[int, int]]) -> list[tuple[Layers, int]]:
        """Of each depth, from its `fewest` microbatches on, some that are too cheap, the most it can have first.

        No split is cheaper with more microbatches: a price excludes all up to so many that would pay for it. What is
        left of them is halved, and the fewest of each half are asked next.
        """
        found, possible = dict[int, tuple[Layers, int]](), self.within.possible
        asked = [(depth, possible[depth], possible[depth]) for depth, _ in shapes]
        left = [(depth, fewest, possible[depth] - 1) for depth, fewest in shapes]
        while asked:
            self.effort.spend(_SPLIT_US * len(asked))
            priced = splits.cheapest([(depth, fewest) for depth, fewest, _ in asked])
            for (depth, fewest, most), (price, split) in zip(asked, priced, strict=True):
                if fewest * worth >= self.microbatches * price:
                    found.setdefault(depth, (split(), fewest))
                elif (fewest := (self.microbatches * price - 1) // worth + 1) <= most:
                    middle = (fewest + most + 1) // 2
                    left += [(depth, fewest, max(fewest, middle - 1)), *([(depth, middle, most)] * (middle > fewest))]
            asked = [one for one in left if one[0] not in found and one[1] <= one[2]]
            left = []
        return [found[depth] for depth, _ in shapes if depth in found]

    def _solved(self) -> tuple[Mixture, IntArray, IntArray]:
        """The most microbatches of mixtures of the pool, and the prices of nodes and of sent layers."""
        shapes = tuple(self.pool)
        program = _Program(self.market, self.load, shapes)
        self.effort.spend(_ENTRY_US * program.matrix.nnz)
        found = linprog(-program.worth, A_ub=program.matrix, b_ub=program.upper, method="highs")  # type: ignore[call-overload]
        kinds, layers = len(self.market.runs), self.market.layers
        if found.x is None:  # the engine failed: prices of nothing prove nothing
            return Mixture((), ()), np.zeros(kinds, dtype=np.int64), np.zeros(layers, dtype=np.int64)
        marginals = np.maximum(np.rint(-found.ineqlin.marginals * _UNIT), 0).astype(np.int64)
        nodes, sent = marginals[:kinds], marginals[kinds : kinds + layers]
        sent[self.market.sizes == 0] = 0
        amounts = found.x[: len(shapes)]
        some = np.flatnonzero(amounts > 1e-9).tolist()
        return Mixture(tuple(shapes[k] for k in some), tuple(float(amounts[k]) for k in some)), nodes, sent


@dataclass(frozen=True)
class Whole:
    """Whole pipelines; how many nodes of each kind take each of their `stages`, [kind, stage]; and who sends what.

    `sent`: copies of a layer that nodes of a kind send, `patterns`: of each size how many, and by how many nodes.
    """

    pipelines: tuple[tuple[Layers, int], ...]
    stages: tuple[Interval, ...]
    flow: IntArray
    sent: Mapping[tuple[int, int], int]
    patterns: Sequence[tuple[int, Pattern, int]]


def whole_plan(
    market: Market,
    load: int,
    shapes: Sequence[tuple[Layers, int]],
    microbatches: int,
    effort: Effort | None = None,
) -> Whole | None:
    """Pipelines of these shapes that count the microbatches and keep to the load; None: not found."""
    program = _Program(market, load, shapes)
    count = len(program.worth)
    effort = effort or Effort()
    effort.spend(2 * _ENTRY_US * program.matrix.nnz)
    if not program.parts_count(microbatches):
        return None
    rules = [
        LinearConstraint(program.matrix, ub=program.upper),
        LinearConstraint(csr_array(program.worth[None]), lb=microbatches),
    ]
    kinds = np.arange(count) < len(shapes)

    def solved(integral: IntArray, bounds: Bounds | None) -> FloatArray | None:
        options = {"node_limit": _NODES}
        found = milp(np.zeros(count), integrality=integral, constraints=rules, bounds=bounds, options=options)  # type: ignore[arg-type]
        return None if found.x is None else np.asarray(found.x)

    x = solved(kinds.astype(np.int64), None)
    effort.spend(_VAIN_US if x is None else 0)
    if x is not None and np.abs(x - np.rint(x)).max() > _WHOLE:  # the pipelines are whole, their nodes are not
        fixed = np.where(kinds, np.rint(x), 0.0)
        x = solved(np.ones(count, dtype=np.int64), Bounds(fixed, np.where(kinds, fixed, np.inf)))
    return None if x is None else program.whole(np.rint(x).astype(np.int64))


class _Program:
    """Rows: nodes of each kind, layers sent, owners of each kind, a node for each stage, nodes that bring nothing.

    Behind them what owners of each kind send of each size.
    """

    def __init__(self, market: Market, load: int, shapes: Sequence[tuple[Layers, int]]) -> None:
        self._market, self._load, self._shapes = market, load, shapes
        self.stages = sorted({stage for layers, _ in shapes for stage in intervals(layers)})
        kinds, layers = len(market.runs), market.layers
        self._layer, self._owner, self._stage = kinds, kinds + layers, 2 * kinds + layers
        self._loose = self._stage + len(self.stages)
        self._rows, self._columns, self._values, self._worth = list[int](), list[int](), list[float](), list[float]()
        self._sizes = dict[tuple[int, int], int]()
        self.served, self.loose, self.brought = dict[int, tuple[int, int]](), dict[int, int](), list[int]()
        self.sent, self.sending = dict[int, tuple[int, int]](), dict[int, tuple[int, Pattern]]()
        self._pipelines()
        self._owners()
        self._nodes()
        rows = self._loose + 1 + len(self._sizes)
        self.upper, self.worth = np.zeros(rows), np.array(self._worth)
        self.upper[:kinds] = self.upper[self._owner : self._stage] = market.counts
        self.matrix = csr_array((self._values, (self._rows, self._columns)), shape=(rows, len(self._worth)))

    def parts_count(self, microbatches: int) -> bool:
        """Whether fractions of pipelines count so many: only then is it worth seeking whole ones."""
        found = linprog(-self.worth, A_ub=self.matrix, b_ub=self.upper, method="highs")  # type: ignore[call-overload]
        return found.fun is not None and bool(-found.fun >= microbatches * (1 - _WHOLE))

    def whole(self, amounts: IntArray) -> Whole:
        """What whole amounts say."""
        pipelines = tuple(
            shape for shape, amount in zip(self._shapes, amounts.tolist(), strict=False) for _ in range(amount)
        )
        flow = np.zeros((len(self._market.runs), len(self.stages)), dtype=np.int64)
        for number, (kind, stage) in self.served.items():
            flow[kind, stage] += amounts[number]
        spare = amounts[self.brought]
        for number, stage in self.loose.items():
            flow[:, stage] += (taken := _first(spare, int(amounts[number])))
            spare -= taken
        needed = Counter(stage for layers, _ in pipelines for stage in intervals(layers))
        for column, interval in enumerate(self.stages):  # more nodes than are needed may stand at a stage
            flow[:, column] = _first(flow[:, column], needed[interval])
        sent = {(kind, layer): int(amounts[number]) for number, (kind, layer) in self.sent.items()}
        patterns = [(kind, some, int(amounts[number])) for number, (kind, some) in self.sending.items()]
        return Whole(pipelines, tuple(self.stages), flow, sent, patterns)

    def _column(self, worth: float, entries: Sequence[tuple[int, float]]) -> None:
        for row, entry in entries:
            self._rows.append(row)
            self._columns.append(len(self._worth))
            self._values.append(entry)
        self._worth.append(worth)

    def _pipelines(self) -> None:
        row_of = {stage: self._stage + number for number, stage in enumerate(self.stages)}
        for split, count in self._shapes:
            self._column(count, [(row_of[stage], 1.0) for stage in intervals(split)])

    def _owners(self) -> None:
        """Which layers nodes of each kind send."""
        market = self._market
        for kind, (first, end) in enumerate(market.runs):
            self.brought.append(len(self._worth))
            self._column(0, [(kind, 1.0), (self._loose, -1.0)])
            for pattern in market.patterns(kind, self._load):
                some = [(self._size(kind, size), -float(many)) for size, many in pattern if many]
                if some:
                    self.sending[len(self._worth)] = kind, pattern
                    self._column(0, [(self._owner + kind, 1.0), *some])
            for layer in range(first, end):
                if size := int(market.sizes[layer]):
                    self.sent[len(self._worth)] = kind, layer
                    self._column(0, [(self._layer + layer, -1.0), (self._size(kind, size), 1.0)])

    def _size(self, kind: int, size: int) -> int:
        return self._sizes.setdefault((kind, size), self._loose + 1 + len(self._sizes))

    def _nodes(self) -> None:
        """Which nodes take which stages, and what these lack then: of each stage first those that bring nothing."""
        market, sizes = self._market, self._market.sizes
        sums, stages = np.concatenate([[0], np.cumsum(sizes)]), np.array(self.stages, dtype=np.int64).reshape(-1, 2)
        start, stop = stages[:, :1], stages[:, 1:]
        runs = np.array([(0, 0), *market.runs], dtype=np.int64)  # the first kind stands for all that bring nothing
        begin, last = np.maximum(runs[:, 0], start), np.minimum(runs[:, 1], stop)
        brings = begin < last
        begin, last = np.where(brings, begin, stop), np.where(brings, last, stop)
        brings[:, 0] = True
        number, kind = np.nonzero(brings & ((sums[stop] - sums[start]) - (sums[last] - sums[begin]) <= self._load))
        columns = len(self._worth) + np.arange(len(number))
        layer = start[number] + np.arange(int((stop - start).max(initial=0)))
        lacks = (layer < begin[number, kind][:, None]) | (layer >= last[number, kind][:, None])
        lacks &= layer < stop[number]
        lacks[lacks] &= sizes[layer[lacks]] > 0
        rows = np.column_stack([np.where(kind, kind - 1, self._loose), self._stage + number, self._layer + layer])
        values = np.column_stack([np.ones_like(kind), -np.ones_like(kind), lacks])
        some = values != 0
        self._rows += rows[some].tolist()
        self._columns += np.broadcast_to(columns[:, None], rows.shape)[some].tolist()
        self._values += values[some].tolist()
        self._worth += [0.0] * len(number)
        for column, k, n in zip(columns.tolist(), kind.tolist(), number.tolist(), strict=True):
            if k:
                self.served[column] = k - 1, n
            else:
                self.loose[column] = n


def _first(amounts: IntArray, wanted: int) -> IntArray:
    """As many of these as are wanted, the first ones first."""
    return np.diff(np.minimum(np.cumsum(amounts), wanted), prepend=0)
