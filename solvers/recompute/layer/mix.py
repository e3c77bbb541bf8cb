"""The best mix of policies over the layers: a bound for every plan, often its exact optimum (README, M)."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solvers.recompute.layer.pareto import IntArray

FloatArray = npt.NDArray[np.float64]

MARGIN = 1e-12
"""What the float prices of a bound may be off by, relative to the largest term."""
BISECTIONS = 60
REFINEMENTS = 40

Mix = tuple[tuple[int, int], ...]
"""(policy, layers) pairs."""


@dataclass(frozen=True)
class Menu:
    """Policies to mix over `layers` layers within `room_bytes`: Σ n·share + max working ≤ room."""

    time_us: IntArray
    share_bytes: IntArray
    working_bytes: IntArray
    layers: int
    room_bytes: int

    def memory(self, mix: Mix) -> int:
        """The bytes of a mix."""
        chosen = [policy for policy, _ in mix]
        return sum(n * int(self.share_bytes[p]) for p, n in mix) + int(self.working_bytes[chosen].max())

    def time(self, mix: Mix) -> int:
        """The time of a mix on the critical path."""
        return sum(n * int(self.time_us[p]) for p, n in mix)


@dataclass(frozen=True)
class Price:
    """Lagrangian prices: a mix within `room` costs at least constant + Σ n·extra + price·(its max working)."""

    per_byte: float
    constant: float
    extra: FloatArray

    @classmethod
    def of(cls, menu: Menu, per_byte: float) -> "Price":
        """Prices for λ = `per_byte` (README, M2), lowered by what floats may be off."""
        priced = menu.time_us + per_byte * menu.share_bytes
        least = float(priced.min())
        terms = menu.layers * float(priced.max()) + per_byte * (abs(menu.room_bytes) + float(menu.working_bytes.max()))
        return cls(per_byte, menu.layers * least - per_byte * menu.room_bytes - MARGIN * terms, priced - least)


def relaxed_bound(menu: Menu, best: int) -> tuple[int, float]:
    """(a lower bound on every mix, the price per byte that proves most for all ceilings at once); at most `best`.

    For every ceiling ω on the working bytes the layers are shared out in fractions (README, M1); the least over ω
    counts. Prices are refined where the bound is least, until that one is exact or the bound meets `best`.
    """
    order = np.argsort(menu.working_bytes, kind="stable")
    ceiling = menu.working_bytes[order].astype(np.float64)
    time, share = menu.time_us[order].astype(np.float64), menu.share_bytes[order].astype(np.float64)
    possible = menu.layers * np.minimum.accumulate(menu.share_bytes[order]) + menu.working_bytes[order]
    closed = possible > menu.room_bytes
    found = np.zeros(len(order))
    shared = _steepest(time, share, menu, ceiling)
    prices = [shared]
    for _ in range(REFINEMENTS):
        found = np.maximum(found, _by_ceiling(time, share, menu, ceiling, prices[-1]))
        where = int(np.where(closed, np.inf, found).argmin())
        if found[where] > best - 1:
            break
        exact = _steepest(time[: where + 1], share[: where + 1], menu, ceiling[where : where + 1])
        if any(math.isclose(exact, price, rel_tol=1e-12) for price in prices):
            break
        prices.append(exact)
    least = float(np.where(closed, np.inf, found).min())
    return min(best, max(0, math.ceil(least))), shared


def _by_ceiling(time: FloatArray, share: FloatArray, menu: Menu, ceiling: FloatArray, price: float) -> FloatArray:
    priced = time + price * share
    margin = MARGIN * (menu.layers * priced.max() + price * (abs(menu.room_bytes) + ceiling[-1]))
    bounds: FloatArray = menu.layers * np.minimum.accumulate(priced) - price * (menu.room_bytes - ceiling) - margin
    return bounds


def _steepest(time: FloatArray, share: FloatArray, menu: Menu, ceiling: FloatArray) -> float:
    """The price that maximises the least bound over the ceilings: concave in the price, so by bisection.

    One ceiling goes with all policies, several go with the policies up to each.
    """

    def slope(price: float) -> float:
        priced = time + price * share
        if len(ceiling) == 1:
            policy = int(priced.argmin())
            return float(menu.layers * share[policy] - (menu.room_bytes - ceiling[0]))
        value = menu.layers * np.minimum.accumulate(priced) + price * ceiling
        last = int(value.argmin())
        policy = int(priced[: last + 1].argmin())
        return float(menu.layers * share[policy] - (menu.room_bytes - ceiling[last]))

    low, high = 0.0, 1.0
    if slope(0.0) <= 0:
        return 0.0
    while slope(high) > 0 and high < 1e18:
        low, high = high, 4 * high
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return high
