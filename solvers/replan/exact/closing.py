"""Loads that fractions of pipelines keep to, and whole numbers of them do not (README, proof 8).

Prices bound what pipelines of each shape (stages and microbatches) cost at least, whatever their splits. So numbers of
pipelines of each shape that count the microbatches must pay at all prices known. Numbers that do are asked whether
fractions of their splits keep to the load; where not, the prices that say so are new ones. Where no numbers are left,
the load is excluded.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from solvers.replan.estimate.objective import Split
from solvers.replan.exact.bounds import IntArray
from solvers.replan.exact.cheapest import CheapestSplits, Layers, Shape
from solvers.replan.exact.counts import STEPS, STEPS_A_US, undominated, whole_numbers
from solvers.replan.exact.market import NEVER
from solvers.replan.exact.prices import Pricing
from solvers.replan.exact.program import UNIT, Program
from solvers.replan.exact.wholes import Whole, placed

_COMBINED_US = 2_000
"""About what a row that others imply takes."""
_PRICED, _SHAPES = 3000, 2000
"""Shapes priced, and shapes of use then: with more the load stays open."""
_CUTS, _ROUNDS = 12, 16
"""How often prices are asked for, and how often new splits are, each time."""
_NEARBY, _APART = 12, 0.3
"""So many prices nearby are asked for splits of whole pipelines, up to this part larger."""
_ENOUGH = 1 - 1e-9
"""Fractions of pipelines this close to whole numbers of them keep to the load."""


@dataclass(frozen=True)
class Closed:
    """Whether prices exclude the load; where not, splits of which whole pipelines may keep to it (none: not known).

    `plan`: such whole pipelines, where some were found.
    """

    excluded: bool
    splits: tuple[Split, ...] = ()
    plan: Whole | None = None


def closed(pricing: Pricing) -> Closed:
    """What whole numbers of pipelines say of a load that `pricing` does not exclude."""
    return _Closing(pricing).run()


class _Closing:
    """Shapes that may be of use, the splits known of each, and what prices say of all of them."""

    def __init__(self, pricing: Pricing) -> None:
        self.pricing, self.effort, self.market, self.load = pricing, pricing.effort, pricing.market, pricing.load
        self.least, self.nodes = pricing.microbatches, int(pricing.market.counts.sum())
        self.shapes, self.costs, self.most = list[Shape](), list[list[int]](), list[int]()
        self.known, self.real = dict[Shape, dict[Layers, None]](), dict[Shape, dict[Layers, None]]()
        self.dearest = dict[Shape, int]()
        """What a split may cost at the first prices for a plan to have it."""

    def run(self) -> Closed:
        if not self._begin():
            return Closed(False)
        for _ in range(_CUTS):
            if self.effort.over() or self.pricing.stop():
                break
            none, some = self._numbers()
            if not some:
                return Closed(none)
            if (told := self._against(some, self.known, self._cheapest)) is None:
                return Closed(False)
            if not told and self._dropped(some):
                continue
            if not told and all(map(self.real.get, some)):
                told = self._against(some, self.real, self._cheapest_real) or ()
            if not told:
                splits = tuple((split, shape[1]) for shape in some for split in self.known[shape])
                return Closed(False, splits, self._whole(some))
            self._learn(*told)
        return Closed(False)

    def _numbers(self) -> tuple[bool, dict[Shape, int]]:
        """Whole numbers of pipelines of each shape that pay at all prices known; or none, and whether there are none.

        Shapes that count no more than another one and cost no less at any prices are left out.
        """
        if not self.shapes:
            return True, {}
        rows, most = [*self.costs, [depth for depth, _ in self.shapes]], [*self.most, self.nodes]
        useful = undominated([count for _, count in self.shapes], rows)
        shapes = [self.shapes[number] for number in useful]
        rows, worth = [[row[number] for number in useful] for row in rows], [count for _, count in shapes]
        self.effort.spend(_COMBINED_US)
        none, numbers = whole_numbers(worth, self.least, rows, most)
        self.effort.spend(0 if none or numbers else STEPS // STEPS_A_US)
        return none, {shape: number for shape, number in zip(shapes, numbers or (), strict=False) if number}

    def _begin(self) -> bool:
        """The shapes that a plan may have at the last prices; False: too many to look at."""
        pricing, possible = self.pricing, self.pricing.within.possible
        nodes, sent = pricing.settled()
        splits, worth = pricing.priced(nodes, sent), self.market.worth(nodes, sent, self.load)
        price, found = dict[Shape, int](), dict[Shape, Layers]()
        each = UNIT
        for _ in range(2):  # where some cost less than they count, the threshold is higher
            spare = max(0, worth - self.least * each)
            some = [
                (depth, count)
                for depth in possible
                for count in range(possible[depth], 0, -1)
                if splits.least[depth] - count * each <= spare
            ]
            if len(some) > _PRICED or not some:
                return False
            new = [shape for shape in some if shape not in price]
            for shape, (cost, split) in splits.cheapest_of_many(new).items():
                price[shape] = cost
                if self.effort.over():
                    return False
                if split is not None:
                    price[shape], found[shape] = pricing.told(splits, shape, cost, split)
            if sum(price[shape] - shape[1] * each <= spare for shape in some) > _SHAPES:
                return False
            each = min(each, *(price[shape] // shape[1] for shape in some))
        spare = worth - self.least * each
        loss = {shape: price[shape] - shape[1] * each for shape in found if price[shape] - shape[1] * each <= spare}
        self.shapes = sorted(loss, key=lambda shape: (-loss[shape], shape))
        self.costs, self.most = [[price[shape] for shape in self.shapes]], [worth]
        self.dearest = {shape: shape[1] * each + spare for shape in self.shapes}
        self.known = {shape: {found[shape]: None} for shape in self.shapes}
        for layers, count in pricing.pool:
            self.known.get((len(layers), count), {})[layers] = None
        return bool(self.shapes)

    def _dropped(self, numbers: dict[Shape, int]) -> bool:
        """Whether some of these shapes have no split that ends in time and is so cheap that a plan may have it.

        Of the others one is known from then on, or none is found.
        """
        counted, gone = self.pricing.counted, set[Shape]()
        if counted is None:
            return False
        splits = self.pricing.priced(*self.pricing.settled_at)
        for shape in numbers:
            if self.effort.over():
                break
            real = self.real.setdefault(shape, {})
            real |= {split: None for split in self.known[shape] if counted(split) >= shape[1]}
            if not real:
                split, none = self.pricing.real(splits, shape, self.dearest[shape])
                real |= {} if split is None else {split: None}
                gone |= {shape} if none else set()
        kept = [number for number, shape in enumerate(self.shapes) if shape not in gone]
        self.shapes = [self.shapes[number] for number in kept]
        self.costs = [[row[number] for number in kept] for row in self.costs]
        return bool(gone)

    def _cheapest(self, splits: CheapestSplits, shape: Shape) -> tuple[int, Layers | None]:
        """The least price of a split of this shape, and the split."""
        ((price, split),) = splits.cheapest([shape])
        return price, split()

    def _cheapest_real(self, splits: CheapestSplits, shape: Shape) -> tuple[int, Layers | None]:
        """What a split that does end in time costs at least, and one of those that cost less than all known."""
        counted = self.pricing.counted
        assert counted is not None, "only then real splits are known"
        price, split = self._cheapest(splits, shape)
        if split is None or counted(split) >= shape[1]:
            return price, split
        known = min(map(splits.price, self.real[shape]))
        split, none = self.pricing.real(splits, shape, known - 1)
        return known if none else price, split

    def _against(
        self,
        numbers: dict[Shape, int],
        known: dict[Shape, dict[Layers, None]],
        cheapest: Callable[[CheapestSplits, Shape], tuple[int, Layers | None]],
    ) -> tuple[IntArray, IntArray, dict[Shape, int]] | tuple[()] | None:
        """Prices that so many pipelines cannot pay, and what these cost; none where fractions keep to the load.

        None where neither is known. `known` splits are mixed, to which the `cheapest` are added.
        """
        for _ in range(_ROUNDS):
            if (found := self._fractions(numbers, known)) is None:
                return None
            amount, nodes, sent = found
            if amount >= _ENOUGH:
                return ()
            splits, fresh, costs = self.pricing.priced(nodes, sent), False, dict[Shape, int]()
            for shape in numbers:
                costs[shape], split = cheapest(splits, shape)
                if split is not None and split not in known[shape]:
                    known[shape][split], fresh = None, True
            if sum(costs[shape] * number for shape, number in numbers.items()) > self.market.worth(
                nodes, sent, self.load
            ):
                return nodes, sent, costs
            if not fresh:
                break
        return None

    def _whole(self, numbers: dict[Shape, int]) -> Whole | None:
        """So many pipelines of splits that do end in time: those known, and the cheapest at prices nearby."""
        counted = self.pricing.counted
        if counted is None or (found := self._fractions(numbers, self.known)) is None:
            return None
        near = np.random.default_rng(0)
        some = {shape: self.known[shape] | self.real.get(shape, {}) for shape in numbers}
        for turn in range(_NEARBY):
            nodes, sent = self.pricing.settled_at if turn % 2 else found[1:]
            nodes = (nodes * (1 + _APART * near.random(len(nodes)))).astype(np.int64)
            nodes += near.integers(0, UNIT // 4, len(nodes)) * (turn % 2)
            sent = (sent * (1 + _APART * near.random(len(sent)))).astype(np.int64)
            splits = self.pricing.priced(nodes, sent)
            for shape, (price, split) in zip(numbers, splits.cheapest(list(numbers)), strict=True):
                some[shape] |= {split(): None} if price < NEVER else {}
        shares = [
            (number, (split, shape[1]))
            for number, shape in enumerate(numbers)
            for split in some[shape]
            if counted(split) >= shape[1]
        ]
        if len({number for number, _ in shares}) < len(numbers):
            return None
        program = Program(self.market.by_host, self.load, [shape for _, shape in shares])
        if len(self.market.links) > 1 and self.effort.spent_us + program.about_us > self.effort.most_us:
            return None  # one program may take most of an effort there
        return placed(program, [number for number, _ in shares], list(numbers.values()), self.effort)

    def _learn(self, nodes: IntArray, sent: IntArray, told: dict[Shape, int]) -> None:
        """What all shapes cost at these prices, of some `told` already."""
        row, found = list[int](), self.pricing.priced(nodes, sent).cheapest_of_many(self.shapes)
        for shape in self.shapes:
            price, split = found[shape]
            row.append(max(price, told.get(shape, 0)))
            self.known[shape] |= {} if split is None else {split: None}
        self.most.append(self.market.worth(nodes, sent, self.load))
        self.costs.append([min(price, self.most[-1] + 1) for price in row])

    def _fractions(
        self, numbers: dict[Shape, int], known: dict[Shape, dict[Layers, None]]
    ) -> tuple[float, IntArray, IntArray] | None:
        """How much of so many pipelines keeps to the load at most, any splits known mixed, and the prices."""
        shares = [(number, split) for number, shape in enumerate(numbers) for split in known[shape]]
        program = Program(self.market, self.load, [(split, 0) for _, split in shares])
        return program.share([number for number, _ in shares], list(numbers.values()), self.effort)
