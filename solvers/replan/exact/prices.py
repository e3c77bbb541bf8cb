"""Which stages want the same nodes, and whose layers all of them want: prices of both (README, proof 7).

A plan whose busiest node receives and sends at most so much is a mixture of pipelines that together take no more nodes
of each kind than there are, and no more layers than their owners can send. At any prices of nodes and of sent layers
the pipelines cost no more than all there is, and no pipeline costs less than the cheapest split that can end in time:
a knapsack. The prices come from a linear program over the splits known so far, the splits from the prices.

One file: the cheapest splits, the program and the whole plans that it finds are one argument.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
from scipy.optimize import LinearConstraint, milp
from scipy.sparse import csr_array, vstack

from solvers.engines import glop
from solvers.replan.exact.bounds import FILLING, IntArray, StageLimits
from solvers.replan.exact.counts import counted
from solvers.replan.exact.market import NEVER, Market, Pattern
from solvers.replan.exact.placement import LARGEST, Priced, cheap_split
from solvers.replan.progress import Effort, Stop
from solvers.replan.transfer.owners import Interval, intervals
from solvers.replan.transfer.transportation import transport

UNIT = 2**24
"""Prices are counted in this part of a microbatch."""
_ROUNDS = 20
"""How often new splits are priced."""
_NEW = 32
"""Splits that one round adds at most."""
_ASKED = 0.15
"""Share of the effort that one question may take; the round in which it is spent is the last."""
_NEAREST, _DEPTHS = 8, 12
"""Splits that whole pipelines are made of; depths whose cheapest split may be one of them."""
_KEPT = {True: 100, False: 1000}
"""Partial splits kept where a cheap one that ends in time is sought: fewer where their responses are compared."""
_SOONER = 1000, 300, 100
"""Parts of the limit by which splits are asked to end sooner, one after the other."""
_MORE = 24
"""Depths looked at together once the first promise too little."""
_TOGETHER = 2**18
"""Entries of tables of splits filled together."""
_NODES = 10
"""Nodes of the search for whole nodes and owners."""
_WHOLES = 16
"""So many numbers of pipelines are asked for."""
_CLOSE = 10**6
"""Reciprocal of how much less than it counts a split has to cost to be of use."""
_WHOLE = 1e-6
"""A number this close to a whole one is one."""
_ROW_US, _ENTRIES_A_US = 16, 4
"""About what each row of a program takes, and how many of its entries a microsecond."""
_CENTS = 1000
"""Prices of nodes mapped anew are counted in this part, and what they receive as this part of a price at most."""
_BEGIN_US, _CELLS_ON_HOSTS_A_US = 4_000, 60
"""About what each program takes where hosts matter, and how many of its rows times columns a microsecond."""
_PLACED = 4
"""So many times what a program takes its whole nodes take."""
_CELLS_A_US = 80
"""Stages times layers of which a cheapest split is found in about a microsecond."""
_STAGES_A_US = 80
"""So many stages on kinds of nodes are priced in about a microsecond."""

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

    def __init__(self, within: Within, prices: IntArray, effort: Effort | None = None) -> None:
        self.effort = effort or Effort()
        self.within, self.layers = within, within.limits.problem.layers
        self.widest = prices.shape[1] - 1
        held, own = np.indices((self.layers + 1, self.widest + 1))
        self.prices, self._before, self._own = prices, np.maximum(held - own, 0), own
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
        self.effort.spend(sum(depth for depth, _ in shapes) * self.layers // _CELLS_A_US)
        if FILLING is not None:
            yield from map(self._native_cheapest, shapes)
            return
        some = max(1, _TOGETHER // (len(self._before) * (self.widest + 1)))
        for start in range(0, len(shapes), some):
            yield from self._cheapest(shapes[start : start + some])

    def cheapest_of_many(self, shapes: Sequence[tuple[int, int]]) -> dict[tuple[int, int], tuple[int, Layers | None]]:
        """The same of all these, few of which are asked: with more microbatches no split of a depth is cheaper.

        What costs the same with few and with many microbatches costs as much with any number between.
        """
        found, counts = dict[tuple[int, int], tuple[int, Layers | None]](), dict[int, list[int]]()
        for depth, count in sorted(set(shapes)):
            counts.setdefault(depth, []).append(count)
        spans = list(counts.items())
        while spans:
            ends = {(depth, some[end]): None for depth, some in spans for end in (0, -1)}
            asked = [shape for shape in ends if shape not in found]
            for shape, (price, split) in zip(asked, self.cheapest(asked), strict=True):
                found[shape] = price, split() if price < NEVER else None
            halves = list[tuple[int, list[int]]]()
            for depth, some in spans:
                last = found[depth, some[-1]]
                if found[depth, some[0]][0] == last[0]:
                    found |= {(depth, count): last for count in some[1:-1]}
                elif len(some) > 2:
                    middle = len(some) // 2
                    halves += [(depth, some[: middle + 1]), (depth, some[middle:])]
            spans = halves
        return found

    def _native_cheapest(self, shape: tuple[int, int]) -> tuple[int, Callable[[], Layers]]:
        """The same of one by the native extension."""
        limits, limit_us = self.within.limits, self.within.limit_us
        price, split = limits.paths.of(*shape).native.cheapest(limits.rooms(*shape), self.prices, limit_us)
        return price, lambda: tuple(split)

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

    def __init__(
        self,
        market: Market,
        load: int,
        within: Within,
        stop: Stop,
        effort: Effort | None = None,
        counted: Callable[[Layers], int] | None = None,
    ) -> None:
        """`counted`: how many microbatches a split finishes in time; None: as many as the relaxation says."""
        self.market, self.load, self.within, self.stop = market, load, within, stop
        self.effort, self.counted, self.exact = effort or Effort(), counted, False
        self.microbatches = market.problem.microbatches
        self.pool: dict[tuple[Layers, int], None] = {}

    def excluded(self, known: Sequence[tuple[Layers, int]]) -> Mixture | None:
        """None where prices exclude such plans; otherwise the mixture that they leave, perhaps of no use."""
        self.pool |= dict.fromkeys(known)
        return self._asked()

    def refined(self, mixture: Mixture) -> Mixture | None:
        """The same where splits count what they do, not what the relaxation says; the mixture itself if it does."""
        enough = mixture.counted >= self.microbatches
        return self._asked() if enough and not self.exact and self._overcounted(mixture) else mixture

    def _asked(self) -> Mixture | None:
        mixture, nodes, sent = self._solved()
        steady, until = (nodes, sent), self.effort.spent_us + _ASKED * self.effort.most_us
        for _ in range(_ROUNDS):
            if self._over() or self.effort.spent_us > until:
                break
            if not self.market.worth(nodes, sent, self.load):  # nothing known keeps to the load: alike, then
                nodes = np.full_like(nodes, UNIT)
            steady = (steady[0] + nodes) // 2, (steady[1] + sent) // 2
            fresh = list[tuple[Layers, int]]()
            for prices in (steady, (nodes, sent)):  # those of programs sway, and what is cheap at their mean is of use
                if not (worth := self.market.worth(*prices, self.load)):
                    continue
                if not (new := self._dear(self.priced(*prices), worth)):
                    return None
                if fresh := [shape for shape in new if shape not in self.pool]:
                    break
            if not fresh:
                break
            self.pool |= dict.fromkeys(fresh)
            mixture, nodes, sent = self._solved()
            if mixture.counted >= self.microbatches:
                break
        self._settle(nodes, sent)
        return mixture

    def _over(self) -> bool:
        return self.stop() or self.effort.over()

    def _overcounted(self, mixture: Mixture) -> bool:
        """Whether splits of the mixture count less than the relaxation says; from then on all count what they do."""
        counted = self.counted
        if counted is None or all(counted(layers) >= count for layers, count in mixture.splits):
            return False
        self.pool = {(layers, most): None for layers, _ in self.pool if (most := counted(layers)) > 0}
        self.exact = bool(self.pool)
        return self.exact

    def nearest(self, most_within: Callable[[Layers], int]) -> list[tuple[Layers, int]]:
        """Of the splits known and the cheapest ones of some depths those that lose least at the last prices.

        A split loses what it costs beyond the microbatches that it counts, as `most_within` says. Mixtures are made of
        those that lose nothing; whole pipelines need some that lose a little to use up nodes and owners.
        """
        counted = [(layers, most) for layers in self._candidates if (most := most_within(layers)) > 0]
        price = Splits(self.within, self._stages, self.effort).price
        return sorted(counted, key=lambda shape: price(shape[0]) - shape[1] * UNIT)[:_NEAREST]

    @cached_property
    def _candidates(self) -> dict[Layers, None]:
        """Splits known, and the cheapest of depths whose pipelines lose least."""
        splits, possible = Splits(self.within, self._stages, self.effort), self.within.possible
        some = dict.fromkeys(layers for layers, _ in self.pool)
        depths = sorted(possible, key=lambda depth: splits.least[depth] - possible[depth] * UNIT)[:_DEPTHS]
        for price, split in splits.cheapest([(depth, possible[depth]) for depth in depths]):
            if price < NEVER:
                some[split()] = None
        return some

    def settled(self) -> tuple[IntArray, IntArray]:
        """The prices of nodes and of sent layers once no split costs less than it counts, or nearly so."""
        nodes, sent = self._last
        for _ in range(_ROUNDS):
            if self._over():
                break
            splits, possible = self.priced(nodes, sent), self.within.possible
            depths = [depth for depth in possible if splits.least[depth] < possible[depth] * UNIT]
            fresh = list[tuple[Layers, int]]()
            for depth, (price, split) in zip(depths, splits.cheapest([(d, possible[d]) for d in depths]), strict=True):
                if price < possible[depth] * (UNIT - UNIT // _CLOSE):
                    layers = split()
                    count = self.counted(layers) if self.exact and self.counted else possible[depth]
                    fresh += [(layers, count)] * (price < count * (UNIT - UNIT // _CLOSE))
            fresh = [shape for shape in fresh if shape not in self.pool]
            if not fresh:
                break
            self.pool |= dict.fromkeys(fresh)
            _, nodes, sent = self._solved()
        self._settle(nodes, sent)
        return nodes, sent

    @property
    def settled_at(self) -> tuple[IntArray, IntArray]:
        """The last prices of nodes and of sent layers."""
        return self._last

    def told(self, splits: Splits, shape: tuple[int, int], price: int, split: Layers) -> tuple[int, Layers]:
        """The same price of a cheapest split, with one that does count its microbatches where the first does not.

        Where no such split costs less than it counts, so much is what each costs at least. What the other split costs
        bounds nothing: there may be cheaper ones.
        """
        depth, count = shape
        if not self.exact or price >= count * UNIT:
            return price, split
        if (real := self._real(splits, depth, count, count * UNIT - 1, split)) is None:
            return count * UNIT, split
        return price, real[0]

    def _settle(self, nodes: IntArray, sent: IntArray) -> None:
        self._last, self._stages = (nodes, sent), self._stage_prices(nodes, sent)
        self.__dict__.pop("_candidates", None)

    def priced(self, nodes: IntArray, sent: IntArray) -> Splits:
        """The cheapest splits at these prices."""
        return Splits(self.within, self._stage_prices(nodes, sent), self.effort)

    def _stage_prices(self, nodes: IntArray, sent: IntArray) -> IntArray:
        self.effort.spend(self.market.missing(self.within.widest).size // _STAGES_A_US)
        return self.market.stage_prices(nodes, sent, self.load, self.within.widest)

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
        while asked and len(found) < _NEW:
            priced = splits.cheapest([(depth, fewest) for depth, fewest, _ in asked])
            for (depth, fewest, most), (price, split) in zip(asked, priced, strict=True):
                if fewest * worth >= self.microbatches * price:
                    if (one := self._real(splits, depth, fewest, fewest * worth // self.microbatches, split())) is None:
                        price = fewest * worth // self.microbatches + 1  # no split that ends in time costs less
                    else:
                        found.setdefault(depth, one)
                if depth not in found and (fewest := (self.microbatches * price - 1) // worth + 1) <= most:
                    middle = (fewest + most + 1) // 2
                    left += [(depth, fewest, max(fewest, middle - 1)), *([(depth, middle, most)] * (middle > fewest))]
            asked = [one for one in left if one[0] not in found and one[1] <= one[2]]
            left = []
        return [found[depth] for depth, _ in shapes if depth in found]

    def _real(
        self, splits: Splits, depth: int, microbatches: int, most: int, split: Layers
    ) -> tuple[Layers, int] | None:
        """A split that costs at most `most` and, once they are told apart, does count the microbatches; None: none."""
        if self.counted is None:
            return split, microbatches
        if (count := self.counted(split)) >= microbatches or not self.exact:
            return split, max(count, microbatches)
        real, none = self.real(splits, (depth, microbatches), most)
        if real is not None:
            return real, self.counted(real)
        return None if none else (split, microbatches)

    def real(self, splits: Splits, shape: tuple[int, int], most: int) -> tuple[Layers | None, bool]:
        """A split that costs at most `most` and does count its microbatches, and whether none is proven to do so."""
        assert self.counted is not None, "callers know what splits count"
        for part in _SOONER:  # what the relaxation lets end a little sooner does end in time, and may cost little more
            within = replace(self.within, limit_us=self.within.limit_us - self.within.limit_us // part)
            ((price, sooner),) = Splits(within, splits.prices, self.effort).cheapest([shape])
            if price <= most and self.counted(sooner()) >= shape[1]:
                return sooner(), False
        priced, limit_us = Priced(splits.prices, most), self.within.limit_us
        keep = _KEPT[shape[1] <= LARGEST]
        return cheap_split(self.within.limits, shape, limit_us, priced, keep, self._over, self.effort)

    def _solved(self) -> tuple[Mixture, IntArray, IntArray]:
        """The most microbatches of mixtures of the pool, and the prices of nodes and of sent layers."""
        shapes = tuple(self.pool)
        program = Program(self.market, self.load, shapes)
        self.effort.spend(program.about_us)
        found = glop.most(program.worth, program.matrix, program.upper)
        if found is None:  # the engine failed: prices of nothing prove nothing
            nothing = [np.zeros(len(some), dtype=np.int64) for some in (self.market.runs, self.market.weights)]
            return Mixture((), ()), nothing[0], nothing[1]
        nodes, sent = program.prices(found.prices, UNIT)
        amounts = found.amounts[: len(shapes)]
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
    """Pipelines of these shapes that count the microbatches and keep to the load; None: not found.

    Whole numbers of pipelines that pay at all prices known are asked whether nodes and owners keep to the load with
    them; where not, the prices that say so are new ones. Where no numbers are left, there are none.
    """
    program, effort = Program(market, load, shapes), effort or Effort()
    effort.spend(program.about_us)
    found = program.parts()
    if found is None or found[0] < microbatches * (1 - _WHOLE):
        return None
    _, nodes, sent = found
    costs, most = [[len(layers) for layers, _ in shapes]], [int(market.counts.sum())]
    for _ in range(_WHOLES):
        prices = market.stage_prices(nodes, sent, load, max(max(layers) for layers, _ in shapes))
        costs.append([_cost(prices, layers) for layers, _ in shapes])
        most.append(market.worth(nodes, sent, load))
        numbers = counted([count for _, count in shapes], microbatches, costs, most)[1]
        if numbers is None:
            return None
        share = program.share(range(len(shapes)), numbers, effort)
        if share is None or effort.over():
            return None
        if share[0] >= 1 - _WHOLE:
            if market.by_host is not market:
                some = [shape for shape, number in zip(shapes, numbers, strict=True) if number]
                program, numbers = Program(market.by_host, load, some), [number for number in numbers if number]
            return program.placed(range(len(numbers)), numbers, effort)
        _, nodes, sent = share
    return None


def _cost(prices: IntArray, layers: Layers) -> int:
    """What the stages of a split cost together; [layers behind, own]."""
    held = np.cumsum(layers[::-1])
    return int(prices[held - layers[::-1], layers[::-1]].clip(max=NEVER // len(layers)).sum())


class Program:
    """Rows: those of `Market.owners`, and a node for each stage. Columns: pipelines, owners, nodes on stages."""

    def __init__(self, market: Market, load: int, shapes: Sequence[tuple[Layers, int]]) -> None:
        self._market, self._load, self._shapes = market, load, shapes
        self.stages = sorted({stage for layers, _ in shapes for stage in intervals(layers)})
        self._owners, self._owned = market.owners(load), len(shapes)
        self._placed = self._owned + self._owners.width
        self.served, self.loose = dict[int, tuple[int, int]](), dict[int, int]()
        self._stage = len(self._owners.most)
        parts = [self._pipelines(), (self._owners.rows, self._owners.columns + self._owned, self._owners.values)]
        *entries, width = self._nodes()
        rows, columns, values = (np.concatenate(some) for some in zip(*parts, entries, strict=True))
        self.upper = np.append(self._owners.most, np.zeros(len(self.stages)))
        self.worth = np.zeros(self._placed + width)
        self.worth[: self._owned] = [count for _, count in shapes]
        self.matrix = csr_array((values, (rows, columns)), shape=(len(self.upper), len(self.worth)))

    @property
    def about_us(self) -> int:
        """About what solving it takes."""
        entries_us = int(self.matrix.nnz) // _ENTRIES_A_US
        if len(self._market.links) == 1:
            return _ROW_US * len(self.upper) + entries_us
        return _BEGIN_US + entries_us + len(self.upper) * len(self.worth) // _CELLS_ON_HOSTS_A_US

    def parts(self) -> tuple[float, IntArray, IntArray] | None:
        """The most microbatches of fractions of pipelines, and the prices of nodes and of sent layers."""
        found = glop.most(self.worth, self.matrix, self.upper)
        return None if found is None else (found.most, *self.prices(found.prices, UNIT))

    def share(
        self, kinds: Sequence[int], numbers: Sequence[int], effort: Effort
    ) -> tuple[float, IntArray, IntArray] | None:
        """Which part of so many pipelines of each kind keeps to the load at most, and the prices; twice all at most.

        `kinds`: of each shape its kind, whose shapes may be mixed.
        """
        effort.spend(self.about_us * 2 // 3)
        rows, columns = self.matrix.shape
        some = [kind for kind, number in enumerate(numbers) if number]
        row_of = {kind: rows + row for row, kind in enumerate(some)}
        mixed = [(row_of[kind], shape) for shape, kind in enumerate(kinds) if kind in row_of]
        matrix = self.matrix.tocoo()
        values = np.concatenate([matrix.data, -np.ones(len(mixed)), [float(numbers[kind]) for kind in some]])
        at = [row for row, _ in mixed] + list(row_of.values()), [shape for _, shape in mixed] + [columns] * len(some)
        places = (np.concatenate([matrix.row, at[0]]), np.concatenate([matrix.col, at[1]]))
        wider = csr_array((values, places), shape=(rows + len(some), columns + 1))
        worth, limits = np.append(np.zeros(columns), 1.0), np.concatenate([self.upper, np.zeros(len(some))])
        found = glop.most(worth, wider, limits, np.append(np.full(columns, np.inf), 2.0))
        scale = UNIT * self._market.problem.microbatches
        return None if found is None else (found.most, *self.prices(found.prices, scale))

    def placed(self, kinds: Sequence[int], numbers: Sequence[int], effort: Effort) -> Whole | None:
        """Whole pipelines, nodes and owners for so many pipelines of each kind, as in `share`; None: not found.

        On no more nodes than they need, which leaves few fractions: often rounding up what owners send is enough.
        """
        effort.spend(self.about_us)
        count, shapes = len(self.worth), len(self._shapes)
        each = csr_array((np.ones(shapes), (kinds, range(shapes))), shape=(len(numbers), count))
        nodes = np.append(np.zeros(self._placed), np.ones(count - self._placed))
        worth = -nodes
        worth[:shapes] = [len(layers) + 1 for layers, _ in self._shapes]
        rows, upper = csr_array(vstack([self.matrix, each])), np.append(self.upper, numbers)
        found = glop.most(worth, rows, upper)
        if found is not None:
            amounts = np.rint(found.amounts)
            some = slice(self._owned, self._placed)
            amounts[some] = np.ceil(found.amounts[some] - _WHOLE)
            if (rows @ amounts <= upper).all() and (each @ amounts >= numbers).all():
                return self.whole(amounts.astype(np.int64))
        if len(self._market.links) > 1:  # where nodes stand decides more than fractions
            return None if found is None else self._rounded(found, kinds, numbers)
        effort.spend(_PLACED * self.about_us)
        rules = [LinearConstraint(self.matrix, ub=self.upper), LinearConstraint(each, lb=numbers, ub=numbers)]
        integral = milp(
            nodes, integrality=np.ones(count, dtype=np.int64), constraints=rules, options={"node_limit": _NODES}
        )
        return None if integral.x is None else self.whole(np.rint(integral.x).astype(np.int64))

    def _rounded(self, found: glop.Priced, kinds: Sequence[int], numbers: Sequence[int]) -> Whole | None:
        """So many whole pipelines, of amounts that are fractions; None: no nodes lack as little as the load.

        What is whole of the nodes on each stage stays, the others are mapped anew where what they lack is cheapest.
        """
        market, amounts = self._market, found.amounts[: len(self._shapes)] + _WHOLE
        whole = amounts.astype(np.int64)
        for kind, number in enumerate(numbers):
            some = [shape for shape, one in enumerate(kinds) if one == kind]
            first = sorted(some, key=lambda shape: whole[shape] - amounts[shape])
            whole[first[: max(0, number - int(whole[some].sum()))]] += 1
            whole[first[0]] += number - int(whole[some].sum())  # where fractions keep to the load in part only
        pipelines = tuple(
            shape for shape, amount in zip(self._shapes, whole.tolist(), strict=True) for _ in range(amount)
        )
        counts = Counter(stage for layers, _ in pipelines for stage in intervals(layers))
        needed = np.array([counts[stage] for stage in self.stages], dtype=np.int64)
        flow = np.zeros((len(market.runs), len(self.stages)), dtype=np.int64)
        for column, (kind, number) in self.served.items():
            flow[kind, number] = int(found.amounts[column] + _WHOLE)
        for number, most in enumerate(needed.tolist()):
            flow[:, number] = _first(flow[:, number], most)
        start, stop = np.array(self.stages, dtype=np.int64).reshape(-1, 2).T
        sums, prices = market.before(market.weights), market.before(self.prices(found.prices, _CENTS)[1])
        load = sums[:, stop] - sums[:, start]
        cost = (prices[:, stop] - prices[:, start]) * _CENTS + load * _CENTS // max(1, int(load.max()))
        cost = np.where(load <= self._load, cost.astype(np.float64), np.inf)
        rest = transport(cost, market.counts - flow.sum(axis=1), needed - flow.sum(axis=0))
        return None if rest is None else Whole(pipelines, tuple(self.stages), flow + rest, {}, ())

    def prices(self, told: FloatArray, scale: int) -> tuple[IntArray, IntArray]:
        """The prices of nodes and of sent layers that a program's solution says, in whole numbers."""
        kinds, copies = len(self._market.runs), len(self._market.weights)
        prices = np.maximum(np.rint(told * scale), 0).astype(np.int64)
        nodes, sent = prices[:kinds], prices[kinds : kinds + copies]
        sent[self._market.weights == 0] = 0
        return nodes, sent

    def whole(self, amounts: IntArray) -> Whole:
        """What whole amounts say."""
        pipelines = tuple(
            shape for shape, amount in zip(self._shapes, amounts.tolist(), strict=False) for _ in range(amount)
        )
        flow = np.zeros((len(self._market.runs), len(self.stages)), dtype=np.int64)
        for number, (kind, stage) in self.served.items():
            flow[kind, stage] += amounts[number]
        owned = amounts[self._owned : self._placed]
        spare = owned[list(self._owners.brought)]
        for number, stage in self.loose.items():
            flow[:, stage] += (taken := _first(spare, int(amounts[number])))
            spare -= taken
        needed = Counter(stage for layers, _ in pipelines for stage in intervals(layers))
        for column, interval in enumerate(self.stages):  # more nodes than are needed may stand at a stage
            flow[:, column] = _first(flow[:, column], needed[interval])
        sent = {(kind, layer): int(owned[number]) for number, (kind, layer) in self._owners.sent.items()}
        patterns = [(kind, some, int(owned[number])) for number, (kind, some) in self._owners.patterns.items()]
        return Whole(pipelines, tuple(self.stages), flow, sent, patterns)

    def _pipelines(self) -> tuple[IntArray, IntArray, FloatArray]:
        row_of = {stage: self._stage + number for number, stage in enumerate(self.stages)}
        rows = [row_of[stage] for split, _ in self._shapes for stage in intervals(split)]
        depths = [len(split) for split, _ in self._shapes]
        return np.array(rows, dtype=np.int64), np.repeat(np.arange(len(depths)), depths), np.ones(len(rows))

    def _nodes(self) -> tuple[IntArray, IntArray, FloatArray, int]:
        """Which nodes take which stages, and what these lack then: of each stage first those that bring nothing.

        Entries, and the number of columns.
        """
        market, stages = self._market, np.array(self.stages, dtype=np.int64).reshape(-1, 2)
        start, stop = stages[:, :1], stages[:, 1:]
        runs = np.array([(0, 0), *market.runs], dtype=np.int64)  # the first kind stands for all that bring nothing
        begin, last = np.maximum(runs[:, 0], start), np.minimum(runs[:, 1], stop)
        brings = begin < last
        begin, last = np.where(brings, begin, stop), np.where(brings, last, stop)
        far = np.concatenate([[0], np.cumsum(market.weights[: market.layers])])
        before = np.vstack([far, market.before(market.weights)])
        if market.inside:
            near = np.zeros((len(market.runs) + 1, market.layers + 1), dtype=np.int64)
            np.cumsum(market.near, axis=1, out=near[1:, 1:])
            brings |= near[:, stop[:, 0]].T > near[:, start[:, 0]].T
        brings[:, 0] = True
        number, kind = np.nonzero(brings & (self._load >= before[:, stop[:, 0]].T - before[:, start[:, 0]].T))
        columns = self._placed + np.arange(len(number))
        layer = start[number] + np.arange(int((stop - start).max(initial=0)))
        lacks = (layer < begin[number, kind][:, None]) | (layer >= last[number, kind][:, None])
        lacks &= layer < stop[number]
        lacks[lacks] &= market.sizes[layer[lacks]] > 0
        copies = layer
        if market.inside:
            copies = np.vstack([np.arange(market.layers), market.copy])[
                kind[:, None], layer.clip(max=market.layers - 1)
            ]
        rows = np.column_stack(
            [
                np.where(kind, kind - 1, market.loose_row),
                self._stage + number,
                market.copy_row + copies,
            ]
        )
        values = np.column_stack([np.ones_like(kind), -np.ones_like(kind), lacks])
        some = values != 0
        for column, k, n in zip(columns.tolist(), kind.tolist(), number.tolist(), strict=True):
            if k:
                self.served[column] = k - 1, n
            else:
                self.loose[column] = n
        spread = np.broadcast_to(columns[:, None], rows.shape)
        return rows[some], spread[some], values[some].astype(np.float64), len(number)


def _first(amounts: IntArray, wanted: int) -> IntArray:
    """As many of these as are wanted, the first ones first."""
    return np.diff(np.minimum(np.cumsum(amounts), wanted), prepend=0)
