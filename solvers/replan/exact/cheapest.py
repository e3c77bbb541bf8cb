"""The cheapest splits that can end in time, at prices of stages (README, proof 7): a knapsack for each shape."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from solvers.replan.exact.bounds import FILLING, IntArray, StageLimits
from solvers.replan.exact.market import NEVER
from solvers.replan.progress import Effort

_TOGETHER = 2**18
"""Entries of tables of splits filled together."""
_CELLS_A_US = 80
"""Stages times layers of which a cheapest split is found in about a microsecond."""

Layers = tuple[int, ...]
"""Layers of each stage."""
Shape = tuple[int, int]
"""Stages and microbatches of a pipeline."""


@dataclass(frozen=True)
class Within:
    """The pipelines that a plan may have: no stage fuller than `limits` say, the slowest within `limit_us`.

    `possible`: the most microbatches of each depth that is of use.
    """

    limits: StageLimits
    limit_us: int
    possible: Mapping[int, int]

    @cached_property
    def widest(self) -> int:
        """No stage has more layers."""
        limits, deepest = self.limits, max(self.possible)
        return max(0, min(limits.fullest, max(limits.room(deepest, k, 1) for k in range(1, deepest + 1))))


class CheapestSplits:
    """The cheapest splits of one shape of pipelines after the other."""

    def __init__(self, within: Within, prices: IntArray, effort: Effort | None = None) -> None:
        self.effort = effort or Effort()
        self.within, self.layers = within, within.limits.problem.layers
        self.widest = prices.shape[1] - 1
        self.prices = prices

    @cached_property
    def _cells(self) -> tuple[IntArray, IntArray, IntArray]:
        """Layers held before a stage, its own, and its price, [layers held, own]."""
        held, own = np.indices((self.layers + 1, self.widest + 1))
        before = np.maximum(held - own, 0)
        return before, own, np.where(held >= own, self.prices[before, own], NEVER)

    @cached_property
    def least(self) -> list[int]:
        """At p: no split over p stages is cheaper, however long it takes."""
        deepest = max(self.within.possible, default=0)
        if FILLING is not None:
            found: list[int] = FILLING.least_prices(self.prices, deepest)
            return found
        held = np.full(self.layers + 1, NEVER)
        held[0], least = 0, [NEVER]
        for _ in range(deepest):
            held = np.minimum((held[self._cells[0]] + self._cells[2]).min(axis=1), NEVER)
            least.append(int(held[-1]))
        return least

    def price(self, layers: Layers) -> int:
        """What the stages of a split cost together."""
        return split_price(self.prices, layers)

    def cheapest(self, shapes: Sequence[Shape]) -> Iterator[tuple[int, Callable[[], Layers]]]:
        """For depths and microbatches the least price of a split that the relaxation lets end in time, and the split.

        `NEVER` where there is none.
        """
        self.effort.spend(sum(depth for depth, _ in shapes) * self.layers // _CELLS_A_US)
        if FILLING is not None:
            yield from map(self._native_cheapest, shapes)
            return
        some = max(1, _TOGETHER // ((self.layers + 1) * (self.widest + 1)))
        for start in range(0, len(shapes), some):
            yield from self._cheapest(shapes[start : start + some])

    def cheapest_of_many(self, shapes: Sequence[Shape]) -> dict[Shape, tuple[int, Layers | None]]:
        """The same of all these, few of which are asked: with more microbatches no split of a depth is cheaper.

        What costs the same with few and with many microbatches costs as much with any number between.
        """
        found, counts = dict[Shape, tuple[int, Layers | None]](), dict[int, list[int]]()
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

    def _native_cheapest(self, shape: Shape) -> tuple[int, Callable[[], Layers]]:
        """The same of one by the native extension."""
        limits, limit_us = self.within.limits, self.within.limit_us
        price, split = limits.paths.of(*shape).native.cheapest(limits.rooms(*shape), self.prices, limit_us)
        return price, lambda: tuple(split)

    def _cheapest(self, shapes: Sequence[Shape]) -> Iterator[tuple[int, Callable[[], Layers]]]:
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
        before, own, prices = (cells[:, :wide] for cells in self._cells)
        tables = np.full((deepest + 1, len(shapes), self.layers + 1), NEVER, dtype=np.int64)
        tables[0, :, 0] = 0
        for k in range(deepest):
            each = np.where(own <= few[k][:, before], tables[k][:, before] + prices, NEVER)
            np.minimum(each.min(axis=2), NEVER, out=tables[k + 1])
        for number, (depth, _) in enumerate(shapes):
            yield int(tables[depth, number, -1]), partial(self._split, tables[:, number], few[:, number], depth)

    def _split(self, tables: IntArray, few: IntArray, depth: int) -> Layers:
        """The split behind the price of all layers."""
        (behind, own, prices), split, held = self._cells, list[int](), self.layers
        for k in range(depth - 1, -1, -1):
            before = behind[held]
            costs = np.where(own[held] <= few[k][before], tables[k][before] + prices[held], 2 * NEVER)
            split.append(int(costs.argmin()))
            held -= split[-1]
        return tuple(split)


def split_price(prices: IntArray, layers: Layers) -> int:
    """What the stages of a split cost together; prices [layers behind, own]."""
    own = np.array(layers[::-1], dtype=np.int64)
    return int(np.minimum(prices[np.cumsum(own) - own, own], NEVER // len(layers)).sum())
