"""Whole numbers of pipelines that keep to prices and count enough (README, proof 8): looked for depth first."""

from collections.abc import Sequence
from math import ldexp

import numpy as np
from scipy.sparse import csr_array

from solvers.engines import glop
from solvers.replan.exact.bounds import FILLING

STEPS = 300_000
"""Numbers that one search fixes at most."""
_LARGEST = 2**62
"""Products from this on do not fit 64 bits."""
_EXACT, _BITS = 80, 44
"""Bits behind the point of prices of rows, and those that the limit of their sum has at most."""
STEPS_A_US = 10
"""So many of them in about a microsecond."""


def counted(
    worth: Sequence[int], least: int, costs: Sequence[Sequence[int]], most: Sequence[int], steps: int = STEPS
) -> tuple[bool, list[int] | None]:
    """Numbers y ≥ 0 with worth · y ≥ least and, in each row, cost · y ≤ most; or None, and whether there are none.

    Without numbers and without proof more than `steps` were needed.
    """
    if max(*worth, least) * max(map(max, [most, *costs])) >= _LARGEST:
        return False, None
    if FILLING is None:
        return counted_in_python(worth, least, costs, most, steps)
    found: tuple[bool, list[int] | None] = FILLING.counted(worth, least, costs, most, steps)
    return found


def combined(worth: Sequence[int], costs: Sequence[Sequence[int]], most: Sequence[int]) -> tuple[list[int], int] | None:
    """A row that these rows imply: their sum at the prices that leave fractions of numbers the least worth.

    It excludes more than each of them alone. None: no prices are known.
    """
    limits = np.maximum(np.array(most, dtype=np.float64), 1)
    found = glop.most(np.array(worth, dtype=np.float64), csr_array(np.array(costs) / limits[:, None]), most / limits)
    if found is None:
        return None
    prices = [int(ldexp(max(0.0, price), _EXACT)) for price in found.prices / limits]
    row = [sum(price * cost for price, cost in zip(prices, each, strict=True)) for each in zip(*costs, strict=True)]
    total = sum(price * limit for price, limit in zip(prices, most, strict=True))
    shift = max(0, total.bit_length() - _BITS)
    return [cost >> shift for cost in row], total >> shift


def undominated(worth: Sequence[int], costs: Sequence[Sequence[int]]) -> list[int]:
    """Which kinds no other one is worth as much as and costs as little as in each row; of equal ones the first."""
    table = np.array([[-one for one in worth], *costs], dtype=np.int64).T
    order = np.lexsort(table.T[::-1])
    kept = list[int]()
    for number in order.tolist():
        if not kept or not (table[kept] <= table[number]).all(axis=1).any():
            kept.append(number)
    return sorted(kept)


def counted_in_python(
    worth: Sequence[int], least: int, costs: Sequence[Sequence[int]], most: Sequence[int], steps: int
) -> tuple[bool, list[int] | None]:
    """The same without the native extension."""
    rows = list(zip(*costs, strict=True))
    best, behind = [(0, 1)] * len(most), list[list[tuple[int, int]]]()
    for one, row in zip(worth[::-1], rows[::-1], strict=True):
        behind.append(best)
        best = [
            (one, cost) if one * known[1] > known[0] * cost else known for known, cost in zip(best, row, strict=True)
        ]
    chosen, left, spent = [0] * len(worth), list(most), 0
    behind.reverse()

    def search(number: int, need: int) -> bool | None:
        nonlocal spent
        if need <= 0:
            return True
        if number == len(worth):
            return False
        one = worth[number]
        low, high = 0, -(-need // one)
        for cost, spare, (first, second) in zip(rows[number], left, behind[number], strict=True):
            if cost > 0:
                high = min(high, spare // cost)
            each, rest = first * cost - second * one, first * spare - second * need
            if second and each > 0:
                high = min(high, rest // each)
            elif second and each < 0:
                low = max(low, -(rest // -each))
            elif second and rest < 0:
                return False
        for count in range(low, high + 1):
            spent += 1
            if spent > steps:
                return None
            for row, cost in enumerate(rows[number]):
                left[row] -= cost * count
            chosen[number] = count
            found = search(number + 1, need - one * count)
            for row, cost in enumerate(rows[number]):
                left[row] += cost * count
            if found is not False:
                return found
            chosen[number] = 0
        return False

    found = search(0, least)
    return (True, chosen) if found else (found is False, None)
