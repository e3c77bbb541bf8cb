"""A recorded iteration, as policies are made from it."""

from collections.abc import Sequence
from typing import NamedTuple

from runtime.swap.landmarks import NONE, Landmarks
from runtime.swap.policy import Sightings
from solvers.ir.graph import OpGraph


class Profiled(NamedTuple):
    """A recorded iteration: its graph, and how the engine identified operators and tensors.

    The graph may be that of an iteration `growth` times as large. `staying_bytes` is what of each operator's memory
    does not depend on the size, where two recordings tell. `landmarks` tell places in it. At the operators `reads` the
    host reads from the device. The tensors `living` are those that somebody holds at its end.
    """

    graph: OpGraph
    operators: Sequence[int]
    phases: Sequence[int]
    sightings: Sightings
    growth: float = 1.0
    staying_bytes: tuple[int, ...] | None = None
    landmarks: Landmarks = NONE
    reads: tuple[int, ...] = ()
    living: frozenset[int] = frozenset()

    @property
    def told_at(self) -> int | None:
        """The first operator by whose end a forward pass has worked on something; None where none did."""
        return min((op for (_, op), sighting in self.sightings.items() if sighting.pass_bytes > 0), default=None)
