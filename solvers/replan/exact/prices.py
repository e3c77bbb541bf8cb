"""Which stages want the same nodes, and whose layers all of them want: prices of both (README, proof 7).

A plan whose busiest node receives and sends at most so much is a mixture of pipelines that together take no more nodes
of each kind than there are, and no more layers than their owners can send. At any prices of nodes and of sent layers
the pipelines cost no more than all there is, and no pipeline costs less than the cheapest split that can end in time:
a knapsack. The prices come from a linear program over the splits known so far, the splits from the prices.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from solvers.replan.estimate.objective import Split
from solvers.replan.exact.bounds import IntArray
from solvers.replan.exact.cheapest import CheapestSplits, Layers, Shape, Within
from solvers.replan.exact.market import NEVER, Market
from solvers.replan.exact.placement import LARGEST, Priced, cheap_split
from solvers.replan.exact.program import UNIT, Program
from solvers.replan.progress import Effort, Stop

_ROUNDS = 20
"""How often new splits are priced."""
_NEW = 24
"""Splits that one round adds at most at each prices."""
_ASKED = 0.15
"""Share of the effort that one question may take: then no splits are told apart, and the round is the last."""
_DEPTHS = 12
"""Depths whose cheapest split may be one of those that whole pipelines are made of."""
_KEPT = {True: (16, 100), False: (16, 1000)}
"""Partial splits kept where a cheap one that ends in time is sought, at first and then: fewer of those compared."""
_SOONER = 1000, 300, 100
"""Parts of the limit by which splits are asked to end sooner, one after the other."""
_MORE = 24
"""Depths looked at together once the first promise too little."""
_CLOSE = 10**6
"""Reciprocal of how much less than it counts a split has to cost to be of use."""
_STAGES_A_US = 80
"""So many stages on kinds of nodes are priced in about a microsecond."""

Prices = tuple[IntArray, IntArray]
"""Of nodes of each kind, and of sent copies of layers."""


@dataclass(frozen=True)
class Mixture:
    """Splits, microbatches, and how many pipelines of them, in fractions: what the prices do not exclude."""

    splits: tuple[Split, ...]
    amounts: tuple[float, ...]

    @property
    def counted(self) -> float:
        """Its microbatches."""
        return sum(count * amount for (_, count), amount in zip(self.splits, self.amounts, strict=True))


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
        begin: Prices | None = None,
    ) -> None:
        """`counted`: the microbatches of a split in time (None: by the relaxation); `begin`: prices to try first."""
        self.market, self.load, self.within, self.stop = market, load, within, stop
        self.effort, self.counted, self.exact = effort or Effort(), counted, False
        self.microbatches = market.problem.microbatches
        self.pool: dict[Split, None] = {}
        self.best: tuple[float, Prices] | None = None
        """How many microbatches plans may count at the prices that leave fewest, about, and these prices."""
        self._begin = [] if begin is None else [begin]
        self._until = math.inf  # the effort at which the question ends

    def excluded(self, known: Sequence[Split]) -> Mixture | None:
        """None where prices exclude such plans; otherwise the mixture that they leave, perhaps of no use."""
        self.pool |= dict.fromkeys(known)
        return self._asked()

    def refined(self, mixture: Mixture) -> Mixture | None:
        """The same where splits count what they do, not what the relaxation says; the mixture itself if it does.

        What is not enough is asked on where prices are nearer to excluding than fractions to counting enough.
        """
        if mixture.counted < self.microbatches:
            if self.best is None or self.best[0] + mixture.counted > 2 * self.microbatches:
                return mixture
            self._begin = [self.best[1]]
            return self._asked()
        return self._asked() if not self.exact and self._overcounted(mixture) else mixture

    def _asked(self) -> Mixture | None:
        (begin, self._begin), self.best = (self._begin, []), None
        self._until = self.effort.spent_us + _ASKED * self.effort.most_us
        if (known := self._fresh(begin)) is None:  # where they exclude the load, no program is solved
            return None
        mixture, nodes, sent = self._solved()
        for turn in range(_ROUNDS):
            if self._spent():
                break
            if not self.market.worth(nodes, sent, self.load):  # nothing known keeps to the load: alike, then
                nodes = np.full_like(nodes, UNIT)
            between = self._between(nodes, sent) if turn else []  # prices sway: their mean with the best comes first
            if (fresh := self._fresh([*between, (nodes, sent)])) is None:
                return None
            if not (fresh := known | fresh):
                break
            self.pool, known = self.pool | fresh, {}
            mixture, nodes, sent = self._solved()
            if mixture.counted >= self.microbatches:
                break
        self._until = math.inf
        self._settle(nodes, sent)
        return mixture

    def _between(self, nodes: IntArray, sent: IntArray) -> list[Prices]:
        return [] if self.best is None else [((self.best[1][0] + nodes) // 2, (self.best[1][1] + sent) // 2)]

    def _fresh(self, tried: Sequence[Prices]) -> dict[Split, None] | None:
        """New splits that are too cheap at some of these prices; None: one of them excludes the load."""
        fresh = dict[Split, None]()
        for prices in tried:
            if not (worth := self.market.worth(*prices, self.load)):
                continue
            new, counts = self._affordable(self.priced(*prices), worth)
            if self.best is None or counts < self.best[0]:
                self.best = counts, prices
            if not new:
                return None
            fresh |= dict.fromkeys(split for split in new if split not in self.pool)
        return fresh

    def _over(self) -> bool:
        return self.stop() or self.effort.over()

    def _spent(self) -> bool:
        return self._over() or self.effort.spent_us > self._until

    def _overcounted(self, mixture: Mixture) -> bool:
        """Whether splits of the mixture count less than the relaxation says; from then on all count what they do."""
        counted = self.counted
        if counted is None or all(counted(layers) >= count for layers, count in mixture.splits):
            return False
        self.pool = {(layers, most): None for layers, _ in self.pool if (most := counted(layers)) > 0}
        self.exact = bool(self.pool)
        return self.exact

    def nearest(self, most_within: Callable[[Layers], int], number: int) -> list[Split]:
        """Of the splits known and the cheapest ones of some depths so many that lose least at the last prices.

        A split loses what it costs beyond the microbatches that it counts, as `most_within` says. Mixtures are made of
        those that lose nothing; whole pipelines need some that lose a little to use up nodes and owners.
        """
        counted = [(layers, most) for layers in self._candidates if (most := most_within(layers)) > 0]
        price = CheapestSplits(self.within, self._stages, self.effort).price
        return sorted(counted, key=lambda shape: price(shape[0]) - shape[1] * UNIT)[:number]

    @cached_property
    def _candidates(self) -> dict[Layers, None]:
        """Splits known, and the cheapest of depths whose pipelines lose least."""
        splits, possible = CheapestSplits(self.within, self._stages, self.effort), self.within.possible
        depths = sorted(possible, key=lambda depth: splits.least[depth] - possible[depth] * UNIT)[:_DEPTHS]
        cheapest = splits.cheapest([(depth, possible[depth]) for depth in depths])
        return {layers: None for layers, _ in self.pool} | {split(): None for price, split in cheapest if price < NEVER}

    def settled(self) -> Prices:
        """The prices of nodes and of sent layers once no split costs less than it counts, or nearly so."""
        nodes, sent = self.settled_at
        for _ in range(_ROUNDS):
            if self._over():
                break
            splits, possible = self.priced(nodes, sent), self.within.possible
            depths = [depth for depth in possible if splits.least[depth] < possible[depth] * UNIT]
            fresh = list[Split]()
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

    def told(self, splits: CheapestSplits, shape: Shape, price: int, split: Layers) -> tuple[int, Layers]:
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
        self.settled_at, self._stages = (nodes, sent), self._stage_prices(nodes, sent)
        self.__dict__.pop("_candidates", None)

    def priced(self, nodes: IntArray, sent: IntArray) -> CheapestSplits:
        """The cheapest splits at these prices."""
        return CheapestSplits(self.within, self._stage_prices(nodes, sent), self.effort)

    def _stage_prices(self, nodes: IntArray, sent: IntArray) -> IntArray:
        market, widest = self.market, self.within.widest
        self.effort.spend(len(market.runs) * (market.layers + 1) * (widest + 1) // _STAGES_A_US)
        return market.stage_prices(nodes, sent, self.load, widest)

    def _affordable(self, splits: CheapestSplits, worth: int) -> tuple[list[Split], float]:
        """Splits so cheap that all there is may pay enough of them (none: it cannot), and what it pays, about."""
        possible, count, waiting = self.within.possible, self.microbatches, list[Shape]()
        for depth in sorted(possible, key=lambda depth: splits.least[depth] / possible[depth]):
            # where a split costs nothing this is 0, and a pipeline still has a microbatch
            fewest = max(1, (count * splits.least[depth] - 1) // worth + 1)
            if fewest <= possible[depth]:
                waiting.append((depth, fewest))
        found, counts, some = list[Split](), 0.0, _NEW
        while waiting and len(found) < _NEW:
            more, most = self._of_depths(splits, worth, waiting[:some])
            found, counts, waiting, some = found + more, max(counts, most), waiting[some:], _MORE
        return found[:_NEW], counts

    def _of_depths(self, splits: CheapestSplits, worth: int, shapes: Sequence[Shape]) -> tuple[list[Split], float]:
        """Of each depth, from its `fewest` microbatches on, some that are too cheap, the most it can have first.

        No split is cheaper with more microbatches: a price excludes all up to so many that would pay for it. What is
        left of them is halved, and the fewest of each half are asked next.
        """
        found, counts, possible = dict[int, Split](), 0.0, self.within.possible
        asked = [(depth, possible[depth], possible[depth]) for depth, _ in shapes]
        left = [(depth, fewest, possible[depth] - 1) for depth, fewest in shapes]
        while asked and len(found) < _NEW:
            priced = splits.cheapest([(depth, fewest) for depth, fewest, _ in asked])
            for (depth, fewest, most), (price, split) in zip(asked, priced, strict=True):
                counts = max(counts, fewest * worth / max(1, price))
                if fewest * worth >= self.microbatches * price:
                    affordable = fewest * worth // self.microbatches
                    if (real := self._real(splits, depth, fewest, affordable, split())) is None:
                        price = affordable + 1  # no split that ends in time costs less
                    else:
                        found.setdefault(depth, real)
                if depth not in found and (fewest := (self.microbatches * price - 1) // worth + 1) <= most:
                    middle = (fewest + most + 1) // 2
                    left += [(depth, fewest, max(fewest, middle - 1)), *([(depth, middle, most)] * (middle > fewest))]
            asked = [(depth, fewest, most) for depth, fewest, most in left if depth not in found and fewest <= most]
            left = []
        return [found[depth] for depth, _ in shapes if depth in found], counts

    def _real(self, splits: CheapestSplits, depth: int, microbatches: int, most: int, split: Layers) -> Split | None:
        """A split that costs at most `most` and, once they are told apart, does count the microbatches; None: none."""
        if self.counted is None:
            return split, microbatches
        if (count := self.counted(split)) >= microbatches or not self.exact or self._spent():
            return split, max(count, microbatches)
        real, none = self.real(splits, (depth, microbatches), most)
        if real is not None:
            return real, self.counted(real)
        return None if none else (split, microbatches)

    def real(self, splits: CheapestSplits, shape: Shape, most: int) -> tuple[Layers | None, bool]:
        """A split that costs at most `most` and does count its microbatches, and whether none is proven to do so."""
        assert self.counted is not None, "callers know what splits count"
        for part in _SOONER:  # what the relaxation lets end a little sooner does end in time, and may cost little more
            within = replace(self.within, limit_us=self.within.limit_us - self.within.limit_us // part)
            ((price, sooner),) = CheapestSplits(within, splits.prices, self.effort).cheapest([shape])
            if price <= most and self.counted(sooner()) >= shape[1]:
                return sooner(), False
        priced, limit_us = Priced(splits.prices, most), self.within.limit_us
        for keep in _KEPT[shape[1] <= LARGEST]:
            split, none = cheap_split(self.within.limits, shape, limit_us, priced, keep, self._spent, self.effort)
            if none or split is not None:
                break
        return split, none

    def _solved(self) -> tuple[Mixture, IntArray, IntArray]:
        """The most microbatches of mixtures of the pool, and the prices of nodes and of sent layers."""
        shapes = tuple(self.pool)
        program = Program(self.market, self.load, shapes)
        self.effort.spend(program.about_us)
        found = program.most()
        if found is None:  # the engine failed: prices of nothing prove nothing
            nothing = [np.zeros(len(some), dtype=np.int64) for some in (self.market.runs, self.market.weights)]
            return Mixture((), ()), nothing[0], nothing[1]
        nodes, sent = program.prices(found)
        some = [(shape, amount) for shape, amount in zip(shapes, found.amounts.tolist(), strict=False) if amount > 1e-9]
        return Mixture(tuple(shape for shape, _ in some), tuple(amount for _, amount in some)), nodes, sent
