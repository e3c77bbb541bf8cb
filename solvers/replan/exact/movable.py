"""How little a node must receive to take over a stage: the load that no mapping avoids (README, proof 5)."""

from bisect import bisect_right
from collections import Counter
from functools import cached_property

import numpy as np
import numpy.typing as npt

from solvers.ir.replan import ReplanProblem
from solvers.replan.exact.bounds import IntArray
from solvers.replan.transfer.owners import held_layers, layer_bytes
from solvers.replan.transfer.senders import Owners, most_copies


class Movable:
    """Of each stage that a pipeline may have, the bytes that the best suited node alive would receive."""

    def __init__(self, problem: ReplanProblem) -> None:
        self._problem, self._most_pipelines = problem, dict[int, int]()

    @cached_property
    def _missing(self) -> IntArray:
        """[layers behind the stage, its own layers]; stages that do not exist miss the whole model and more."""
        layers = self._problem.layers
        sizes = np.concatenate([[0], np.cumsum(layer_bytes(self._problem))])
        behind, own = np.indices((layers + 1, layers + 1))
        end, start = layers - behind, np.maximum(layers - behind - own, 0)
        missing = sizes[end] - sizes[start] - self._shared(sizes)[start, end]
        return np.asarray(np.where((own >= 1) & (behind + own <= layers), missing, sizes[-1] + 1))

    def _shared(self, sizes: IntArray) -> IntArray:
        """[first layer, end] of a stage: the most bytes of it that one node holds.

        Such a node begins before the stage, and then reaches as far as any, or at one of the stage's own layers.
        """
        every = np.arange(len(sizes))
        last_of = every.copy()
        for first, last in set(held_layers(self._problem).values()):
            last_of[first] = max(int(last_of[first]), last)
        reach = np.maximum.accumulate(last_of)
        shared, within = np.zeros((len(sizes), len(sizes)), dtype=np.int64), np.zeros_like(sizes)
        for first in every[::-1]:
            np.maximum(within, sizes[np.minimum(every, last_of[first])] - sizes[first], out=within)
            shared[first] = np.maximum(within, sizes[np.minimum(every, reach[first])] - sizes[first])
        return shared

    @cached_property
    def loads(self) -> tuple[int, ...]:
        """The bytes that the busiest receiver may have to receive, in rising order; the last allows every stage."""
        if self._problem.current is None:
            return (0,)
        found = np.unique(self._missing)
        return tuple(sorted({self._least, *found[found <= sum(layer_bytes(self._problem))].tolist()}))

    def known(self, load: int) -> int:
        """The last of the `loads` that is no larger."""
        return self.loads[max(0, bisect_right(self.loads, load) - 1)]

    def nodes(self, load: int) -> int:
        """How many nodes can take over any stage at all receiving at most `load` bytes: idle ones hold nothing."""
        return self._problem.nodes if load >= self.loads[-1] or load >= self._least else self._holding

    def pipelines(self, load: int) -> int:
        """How many pipelines there can be if the busiest node receives or sends less than the next of the `loads`.

        Each has all layers, and who holds one already sends it to those that lack it; a node that may not even receive
        a layer serves only what it holds. At least 1, as one pipeline may hold more than it needs.
        """
        if load >= self.loads[-1]:
            return self._problem.nodes
        if load < self._least:
            return min(self._owned, default=self._problem.nodes)
        if load not in self._most_pipelines:
            larger = self.loads[bisect_right(self.loads, load)]
            self._most_pipelines[load] = most_copies(self._owners, self._sizes, larger - 1, self._problem.nodes)
        return self._most_pipelines[load]

    @cached_property
    def _owners(self) -> Owners:
        return Owners(held_layers(self._problem))

    @cached_property
    def _owned(self) -> list[int]:
        """How many nodes alive hold each layer."""
        owners = Counter[int]()
        for first, last in held_layers(self._problem).values():
            owners.update(range(first, last))
        return [owners[layer] for layer in range(self._problem.layers)]

    @cached_property
    def _sizes(self) -> list[int]:
        """Of each layer, but for those that nobody can send."""
        return [size if count else 0 for size, count in zip(layer_bytes(self._problem), self._owned, strict=True)]

    @cached_property
    def _holding(self) -> int:
        """The nodes alive that hold layers."""
        return len(held_layers(self._problem)) or self._problem.nodes

    @cached_property
    def _least(self) -> int:
        """The bytes of the smallest layer."""
        return min(layer_bytes(self._problem))

    def within(self, load: int) -> npt.NDArray[np.bool_] | None:
        """Which stages some node can take over receiving at most `load` bytes; None: every stage."""
        return None if load >= self.loads[-1] else self._missing <= load
