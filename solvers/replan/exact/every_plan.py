"""All plans of a small problem that could still be the best, one after the other."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations_with_replacement, groupby, product

from solvers.replan.estimate.objective import Split
from solvers.replan.exact.bounds import StageLimits
from solvers.replan.exact.placement import every_split_within
from solvers.replan.knapsack import counted, fill

Shape = tuple[int, int]
"""A pipeline's depth and microbatches."""


class TooManyError(Exception):
    """There are more splits or plans than it was agreed to look at, or than there is time for."""


@dataclass
class EveryPlan:
    """Plans on `nodes` nodes whose pipelines end within `limit_us`; `worth`: the most microbatches of each depth.

    `latest_us`: when pipelines of these depths must end, if that is sooner.
    """

    limits: StageLimits
    nodes: int
    worth: dict[int, int]
    limit_us: int
    most: int
    stop: Callable[[], bool]
    latest_us: Callable[[tuple[int, ...]], int]
    _known: dict[Shape, list[tuple[Split, int]]] = field(default_factory=dict)

    def plans(self) -> Iterator[tuple[int, tuple[Split, ...]]]:
        """The slowest pipeline's time and the pipelines, each set once.

        `TooManyError` after `most` of them or of their shapes, where a shape has more splits, or if it has to stop.
        """
        number, count = 0, self.limits.problem.microbatches
        for shape_number, shapes in enumerate(self._shapes(self.nodes, count, (self.nodes, count))):
            if shape_number >= self.most or self.stop():
                raise TooManyError
            latest_us = self.latest_us(tuple(depth for depth, _ in shapes))
            choices = [
                combinations_with_replacement(self._within(shape, latest_us), len(list(alike)))
                for shape, alike in groupby(shapes)
            ]
            for chosen in product(*choices):
                number += 1
                if number > self.most:
                    raise TooManyError
                timed = [pipeline for part in chosen for pipeline in part]
                yield max(time_us for _, time_us in timed), tuple(split for split, _ in timed)

    def _shapes(self, nodes: int, microbatches: int, largest: Shape) -> Iterator[tuple[Shape, ...]]:
        """Depths and microbatches, descending, that use at most `nodes` nodes and count `microbatches` microbatches.

        None is begun that cannot be completed.
        """
        if self.stop():
            raise TooManyError
        if microbatches == 0:
            yield ()
        for depth in sorted(self.worth, reverse=True):
            for count in range(min(self._most(depth, largest), microbatches), 0, -1):
                shape = (depth, count)
                if depth > nodes or self._counted(nodes - depth, shape) < microbatches - count:
                    break  # fewer leave more to the others, which then may not count more either
                for rest in self._shapes(nodes - depth, microbatches - count, shape):
                    yield (shape, *rest)

    def _most(self, depth: int, largest: Shape) -> int:
        """The most microbatches of a pipeline of this depth that is no larger."""
        if depth > largest[0]:
            return 0
        return min(self.worth[depth], largest[1]) if depth == largest[0] else self.worth[depth]

    def _counted(self, nodes: int, largest: Shape) -> int:
        """The most microbatches that `nodes` nodes count with pipelines that are no larger."""
        worth = {depth: self._most(depth, largest) for depth in self.worth}
        return counted(worth, fill(worth, nodes))

    def _within(self, shape: Shape, latest_us: int) -> list[tuple[Split, int]]:
        """The splits of a shape that end so soon, and their times."""
        if latest_us < self.limits.alone_us:
            return []
        return [(split, time_us) for split, time_us in self._of(*shape) if time_us <= latest_us]

    def _of(self, depth: int, microbatches: int) -> list[tuple[Split, int]]:
        """The splits of a shape, and their times."""
        shape = (depth, microbatches)
        if shape not in self._known:
            found = every_split_within(self.limits, depth, microbatches, self.limit_us, self.most)
            if not found.complete:
                raise TooManyError
            listed = zip(found.layers.tolist(), found.times_us.tolist(), strict=True)
            self._known[shape] = [((tuple(layers), microbatches), time_us) for layers, time_us in listed]
        return self._known[shape]
