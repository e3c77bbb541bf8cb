"""Which op of a measured step's graph stands for which place of its pass, and what an op stands for."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from runtime.recompute.graph import Place, Step
from runtime.recompute.layer import Layer
from runtime.recompute.outside import AFTER, BACKWARD, Where
from runtime.recompute.whole import begin_of


class Places:
    """Which ops of the graph stand for a place of the pass.

    Behind the last block there is one until each of `behind_counts`, and the loss.
    """

    def __init__(self, step: Step, layers: Sequence[Layer]) -> None:
        starts = [*_starts(step, layers), (len(layers) + 1, 0)]
        self._begins: list[tuple[int, int]] = []
        self._ops: list[int] = []
        for op, (begin, end) in enumerate(pairwise(starts)):
            if begin < end:
                self._begins.append(begin)
                self._ops.append(op)
        self._backward: dict[int, list[int]] = {}
        for op in range(begin_of(step), len(step.places)):
            self._backward.setdefault(step.places[op].block, []).append(op)

    def forward(self, where: Where) -> int:
        """The one op of a place in the forward pass."""
        return self._ops[max(0, bisect_right(self._begins, where[1:]) - 1)]

    def ops(self, where: Where) -> list[int]:
        """In order; none behind the pass."""
        if where >= BACKWARD:
            return self._backward.get(-where[1], []) if where < AFTER else []
        return [self.forward(where)]


def _starts(step: Step, layers: Sequence[Layer]) -> list[tuple[int, int]]:
    """At which block and node the forward pass's ops begin."""
    starts: list[tuple[int, int]] = []
    done, behind = 0, -1
    for place in step.places[: begin_of(step)]:
        if place.kind == "unit":
            starts.append((place.block, layers[place.block].units[place.index].nodes[0]))
        elif place.kind == "output":
            starts.append((place.block, behind_units(layers[place.block])))
            done = place.block + 1
        elif place.kind == "given" or not starts:
            starts.append((0, -1))
        elif place.kind == "other":
            starts.append((done, -1))
        else:
            starts.append((len(layers), behind))
            behind = place.index + 1
    return [max(starts[: index + 1]) for index in range(len(starts))]


def behind_units(layer: Layer) -> int:
    """The first node behind those with which a block's units begin: its output's op stands for it and the rest."""
    return 1 + max((unit.nodes[0] for unit in layer.units), default=-1)


def given_to(place: Place, blocks: int) -> int | None:
    """Which block is given that op's output."""
    block = 0 if place.kind == "given" else place.block + 1 if place.kind == "output" else blocks
    return block if block < blocks else None
