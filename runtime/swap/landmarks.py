"""Where in an iteration an operator or a tensor is, told so that what comes or goes elsewhere does not change it.

Counted from the iteration's begin, everything behind an expert that gets no tokens has another number. So operators
and lookalikes are counted from the latest *landmark* (`csrc/session/course.h` finds them again): the first use of a
parameter in the forward or the backward pass, or the first operator of a phase. Parameters outlive iterations, so that
their storages tell them; and a layer's, or an expert's, are used where it is.
"""

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from runtime.device.native import core

FORWARD, WITHOUT_GRADIENTS, BACKWARD, OPTIMIZER = range(4)
"""Phases of operators, as the engine numbers them."""
ANY = 0
"""The storage of a landmark that is the first operator of its phase."""


class Landmark(NamedTuple):
    """The first use of a storage in operators of that phase and turn: a forward pass and what follows on it."""

    storage: int
    phase: int
    turn: int


class Spot(NamedTuple):
    """So many operators, or lookalikes, after a landmark."""

    landmark: int = 0
    since: int = 0


class Landmarks(NamedTuple):
    """All of an iteration in their order, each with its operator; and of each sighting its spot among lookalikes.

    Sightings are told by operator and position.
    """

    found: tuple[Landmark, ...] = ()
    ops: tuple[int, ...] = ()
    sighted: Mapping[tuple[int, int], Spot] = {}

    def spot(self, op: int) -> Spot:
        """Of an operator."""
        latest = bisect_right(self.ops, op) - 1
        return Spot() if latest < 0 else Spot(latest, op - self.ops[latest])


NONE = Landmarks()
"""Nothing is told by any: what is counted is counted from the iteration's begin."""


def landmarks(phases: Sequence[int], sightings: Sequence[core.SwapSighting], staying: Collection[int]) -> Landmarks:
    """Of an iteration with these phases of its operators; `staying` are the storages of its parameters."""
    used: dict[int, list[int]] = {}
    for sighting in sightings:
        if sighting.storage in staying and not sighting.result:
            used.setdefault(sighting.op, []).append(sighting.storage)
    found: dict[Landmark, int] = {}
    for op, (phase, turn) in enumerate(zip(phases, turns(phases), strict=True)):
        for storage in (ANY, *(used.get(op, ()) if phase != OPTIMIZER else ())):
            found.setdefault(Landmark(storage, phase, turn), op)
    ops = tuple(found.values())
    return Landmarks(tuple(found), ops, _among_lookalikes(sightings, ops))


def turns(phases: Sequence[int]) -> list[int]:
    """Of each operator: so many forward passes came before the latest, told by a backward pass between."""
    turn, backward, found = 0, False, []
    for phase in phases:
        if phase in (FORWARD, WITHOUT_GRADIENTS):
            turn, backward = turn + backward, False
        backward = backward or phase == BACKWARD
        found.append(turn)
    return found


def _among_lookalikes(sightings: Sequence[core.SwapSighting], ops: Sequence[int]) -> dict[tuple[int, int], Spot]:
    seen: dict[tuple[int, int], int] = {}
    found = {}
    for sighting in sightings:
        latest = max(bisect_right(ops, sighting.op) - 1, 0)
        count = seen.get((latest, sighting.key), 0)
        seen[latest, sighting.key] = count + 1
        found[sighting.op, sighting.position] = Spot(latest, count)
    return found
