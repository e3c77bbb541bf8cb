"""What to examine first: level splits and estimates of their times. No proof rests on it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from solvers.replan.exact.bounds import StageLimits
from solvers.replan.exact.start import level_split
from solvers.replan.knapsack import counted, fill

_FINENESS = 512
"""Reciprocal of the relative tolerance of the bisection for estimated times."""


@dataclass(frozen=True)
class _Level:
    """A level split: one microbatch takes `alone_us`, each further one about `each_us`."""

    fullest: int
    alone_us: int
    each_us: int

    def most(self, limit_us: int, microbatches: int) -> int:
        spare = limit_us - self.alone_us
        return 0 if spare < 0 else min(microbatches, 1 + spare // self.each_us if self.each_us else microbatches)


class Promises:
    """For depths and for limits on the fullest stage, about how soon pipelines can end."""

    def __init__(self, limits: StageLimits, depths: Iterable[int]) -> None:
        self._problem, self._levels = limits.problem, dict[int, _Level]()
        for depth in depths:
            layers = level_split(limits, depth, depth)
            if layers is not None:
                alone_us = limits.alone_us + 2 * (depth - 1) * limits.problem.p2p_us
                self._levels[depth] = _Level(max(layers), alone_us, limits.longest_us(layers))

    def depths(self, fullest: int) -> list[int]:
        """The depths whose level splits have at most `fullest` layers a stage, by their estimated time."""
        return [depth for _, depth in sorted(self._shares_us(fullest))]

    def most(self, depth: int, limit_us: int) -> int:
        """About the most microbatches of a pipeline of this depth within the limit, at least 1."""
        level = self._levels.get(depth)
        return 1 if level is None else max(1, level.most(limit_us, self._problem.microbatches))

    def fullest(self, among: Sequence[int], sync_us: Callable[[int], int]) -> int:
        """Of these limits on the fullest stage, that with which pipelines and their synchronization end soonest."""
        simple = dict[int, int]()
        for about_us, depth in self._shares_us(max(among)):
            number = self._levels[depth].fullest
            simple[number] = min(about_us + sync_us(number), simple.get(number, about_us + sync_us(number)))
        best = list[tuple[int, int]]()
        for about_us, number in sorted((about_us, number) for number, about_us in simple.items() if number in among):
            if best and about_us >= best[0][0]:
                break  # with whole pipelines it takes no less
            best = sorted([*best, (self._slowest_us(number) + sync_us(number), number)])
        return best[0][1] if best else among[0]

    def _slowest_us(self, fullest: int) -> int:
        """About the least limit within which pipelines on all nodes count all microbatches."""
        low = high = min(self._shares_us(fullest))[0]
        while not self._fills(fullest, high):
            low, high = high, high + max(1, high // 8)
        while high - low > 1 + low // _FINENESS:
            middle = (low + high) // 2
            if self._fills(fullest, middle):
                high = middle
            else:
                low = middle
        return high

    def _shares_us(self, fullest: int) -> list[tuple[int, int]]:
        """About the time of each depth if its share of the microbatches were any fraction of them, and the depth."""
        nodes, count = self._problem.nodes, self._problem.microbatches
        some = [(depth, level) for depth, level in self._levels.items() if level.fullest <= fullest]
        return [(level.alone_us + level.each_us * (count * depth - nodes) // nodes, depth) for depth, level in some]

    def _fills(self, fullest: int, limit_us: int) -> bool:
        nodes, count = self._problem.nodes, self._problem.microbatches
        some = {depth: level.most(limit_us, count) for depth, level in self._levels.items() if level.fullest <= fullest}
        return counted(some, fill(some, nodes, least=count)) >= count
