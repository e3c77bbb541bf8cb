"""Algorithm 1's layers: even first, then every place for those that are left over ([R], lines 13-14)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from math import comb

import msgspec
import numpy as np
from numpy.typing import NDArray

from solvers.ir.replan import ReplanProblem
from solvers.partition import even_split
from solvers.replan.estimate.memory import most_layers
from solvers.replan.estimate.pipeline import batch_us, stage_tables_us
from solvers.replan.progress import Stop, Stopped, never

Layers = tuple[int, ...]
KEPT_MODELS = 16
"""Models whose placements are remembered between calls."""
PORTION = 2**26
"""Passes of stages that are timed in one array operation: a fraction of a second."""


@dataclass(frozen=True)
class Placed:
    """The best layers a stage that were found for a pipeline, and its time by F5."""

    layers: Layers
    pipeline_us: int


@dataclass(frozen=True)
class EvenPlacements:
    """The best near-even split of one model's layers for each depth and number of microbatches, each computed once.

    `most`: how many places for the left-over layers are enumerated; where there are more, only three stand for them:
    all at the front, in the middle, and at the back. (For equal layers the front was best in all of 80 enumerations
    tried; it is the worst for memory, which is why the others stay candidates.)
    """

    model: ReplanProblem
    most: int
    _found: dict[tuple[int, int], Placed | None] = field(default_factory=dict, repr=False, compare=False)

    def best(self, depth: int, microbatches: int, stop: Stop = never) -> Placed | None:
        """The fastest placement that fits; None where there are fewer layers than stages, or none fits a node.

        `Stopped` where the search has to stop before it is known.
        """
        key = (depth, microbatches)
        if key not in self._found:
            self._found[key] = self._search(depth, microbatches, stop)
        return self._found[key]

    def _search(self, depth: int, microbatches: int, stop: Stop) -> Placed | None:
        layers = self.model.layers
        if depth > layers:
            return None
        most = np.array(most_layers(self.model, depth, microbatches))
        if most.min() < layers // depth or int(most.sum()) < layers:
            return None
        splits = near_even(layers, depth, self.most)
        fitting = np.flatnonzero((np.array(splits) <= most).all(axis=1))
        portion = max(1, PORTION // (depth * (1 + min(microbatches, 2 * depth))))
        placed: list[Placed] = []
        for start in range(0, len(fitting), portion):
            if stop():
                raise Stopped
            chosen = [splits[number] for number in fitting[start : start + portion]]
            times = _pipelines_us(self.model, chosen, microbatches)
            placed.append(Placed(chosen[int(times.argmin())], int(times.min())))
        return min(placed, key=lambda found: found.pipeline_us, default=None)


def near_even(layers: int, depth: int, most: int) -> list[Layers]:
    """Splits whose stages differ by one layer at most, the front one first: all of them where they are at most `most`.

    Otherwise those with the left-over layers at the front, in the middle and at the back.
    """
    every, over = divmod(layers, depth)
    if comb(depth, over) > most:
        return list(dict.fromkeys(even_split(layers, depth, where) for where in ("front", "middle", "back")))
    return [
        tuple(every + (stage in more) for stage in range(depth)) for more in map(set, combinations(range(depth), over))
    ]


def _pipelines_us(model: ReplanProblem, splits: Sequence[Layers], microbatches: int) -> NDArray[np.int64]:
    """F5 of pipelines of equal depth, with as many microbatches each."""
    forward, backward = stage_tables_us(model, splits)
    return batch_us(forward, backward, np.full(len(splits), microbatches, dtype=np.int64), model.p2p_us)


def model_of(problem: ReplanProblem) -> ReplanProblem:
    """The problem without what differs from failure to failure: what placements and templates depend on."""
    return msgspec.structs.replace(
        problem,
        name="",
        nodes=1,
        data_parallel=None,
        current=None,
        restart_us=None,
        bytes_per_s=None,
        expected_interval_us=None,
        hosts=None,
    )


@lru_cache(maxsize=KEPT_MODELS)
def _placements(model: ReplanProblem, most: int) -> EvenPlacements:
    return EvenPlacements(model, most)


def placements_of(problem: ReplanProblem, most: int) -> EvenPlacements:
    """The placements of the problem's model, remembered between calls."""
    return _placements(model_of(problem), most)
