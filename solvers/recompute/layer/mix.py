"""Bounds for every mix of policies over the layers, by prices for memory (README, M1–M2)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from solvers.recompute.layer.pareto import IntArray

FloatArray = npt.NDArray[np.float64]

MARGIN = 1e-12
"""What a bound computed in floats may be off by, relative to its largest term."""
REFINEMENTS = 64
"""Prices that are tried for the least bound."""


@dataclass(frozen=True, eq=False)
class Menu:
    """Policies to mix over `layers` layers within `room_bytes`: Σ n·share + max working ≤ room, Σ n·time least.

    `late_us`, where it is given, comes to the time once, of the policy that the last layer has: that with the least.
    """

    time_us: IntArray
    share_bytes: IntArray
    working_bytes: IntArray
    layers: int
    room_bytes: int
    late_us: IntArray | None = None

    def up_to(self, working_bytes: int) -> IntArray:
        """The policies whose working set is no larger."""
        return np.flatnonzero(self.working_bytes <= working_bytes)

    def time_of(self, mix: Sequence[tuple[int, int]]) -> int:
        """Of (policy, layers) pairs."""
        late = 0 if self.late_us is None else min(int(self.late_us[policy]) for policy, _ in mix)
        return late + sum(layers * int(self.time_us[policy]) for policy, layers in mix)

    def without(self, policy: int) -> "Menu":
        """What a layer with that policy leaves to the others, whose times are theirs alone."""
        working = np.maximum(self.working_bytes, self.working_bytes[policy])
        room = self.room_bytes - int(self.share_bytes[policy])
        return Menu(self.time_us, self.share_bytes, working, self.layers - 1, room)


@dataclass(frozen=True)
class Price:
    """The price of a byte at which the remaining layers go to the fast policy or to the light one, or to both."""

    per_byte: float
    fast: int
    light: int


def price(menu: Menu, among: IntArray, layers: int, room_bytes: int) -> Price | None:
    """The price that proves most for `layers` layers within `room_bytes`; None where they do not fit at all.

    The dual of sharing the layers out in fractions: concave and piecewise linear in the price, so the crossing of the
    lines of a policy that is too heavy and of one that is light enough is tried until no policy lies below.
    """
    time_us, share = menu.time_us[among], menu.share_bytes[among]
    fast = int(np.lexsort([share, time_us])[0])
    light = int(np.lexsort([time_us, share])[0])
    if layers * int(share[light]) > room_bytes:
        return None
    if layers * int(share[fast]) <= room_bytes:
        return Price(0.0, int(among[fast]), int(among[fast]))
    while True:
        per_byte = (int(time_us[light]) - int(time_us[fast])) / (int(share[fast]) - int(share[light]))
        priced = time_us + per_byte * share
        below = int(priced.argmin())
        if not priced[below] < min(priced[fast], priced[light]) * (1 - MARGIN):
            return Price(per_byte, int(among[fast]), int(among[light]))
        if layers * int(share[below]) > room_bytes:
            fast = below
        else:
            light = below


def peak_bounds(menu: Menu, best: int) -> FloatArray:
    """For each policy a bound on all mixes in which none has a larger working set; inf where there is no such mix.

    Bounds are refined, least first, until the least one is exact for layers in fractions or exceeds `best` − 1.
    """
    order = np.argsort(menu.working_bytes, kind="stable")
    working = menu.working_bytes[order]
    last = np.searchsorted(working, working, side="right") - 1
    rest = menu.layers - 1
    room = menu.room_bytes - working - menu.share_bytes[order]
    bounds = menu.time_us[order] + rest * np.minimum.accumulate(menu.time_us[order])[last].astype(np.float64)
    if menu.late_us is not None:
        bounds += _least_late(menu, order, last, menu.time_us[order])
    bounds[rest * np.minimum.accumulate(menu.share_bytes[order])[last] > room] = np.inf
    seen: set[int] = set()
    for _ in range(REFINEMENTS if rest else 0):
        where = int(bounds.argmin())
        if where in seen or bounds[where] > best - 1:
            break
        seen.add(where)
        found = price(menu, order[: last[where] + 1], rest, int(room[where]))
        if found is not None and found.per_byte > 0:
            bounds = np.maximum(bounds, _priced(menu, order, last, room, found.per_byte))
    given = np.empty_like(bounds)
    given[order] = bounds
    return given


def _priced(menu: Menu, order: IntArray, last: IntArray, room: IntArray, per_byte: float) -> FloatArray:
    """(M2) the policy's own time, the others' least priced time, less the price of the room that they have."""
    priced = menu.time_us[order] + per_byte * menu.share_bytes[order]
    rest = menu.layers - 1
    terms = rest * priced.max() + per_byte * np.abs(room) + menu.time_us[order]
    bounds: FloatArray = menu.time_us[order] + rest * np.minimum.accumulate(priced)[last] - per_byte * room
    if menu.late_us is not None:
        bounds += _least_late(menu, order, last, priced)
    bounds -= MARGIN * terms
    return bounds


def _least_late(menu: Menu, order: IntArray, last: IntArray, priced: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The least that the last layer adds: it is the one with the largest working set, or one of the others."""
    assert menu.late_us is not None
    late = menu.late_us[order]
    if menu.layers == 1:
        return late
    others = np.minimum.accumulate(priced + late)[last] - np.minimum.accumulate(priced)[last]
    found: npt.NDArray[Any] = np.minimum(late, others)
    return found


def least_bound(bounds: FloatArray, best: int) -> int:
    """The bound on every mix: times are whole, and a mix with time `best` is known."""
    return min(best, max(0, math.ceil(float(bounds.min()))))
