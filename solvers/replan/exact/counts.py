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
STEPS_A_US = 25
"""So many of them in about a microsecond."""
_NUMBERS = 4
"""Where a search breaks off, up to so many numbers of pipelines are asked one by one."""


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
    limit = total >> shift
    return [min(cost >> shift, limit + 1) for cost in row], limit  # what costs more is excluded all the same


def between(
    worth: Sequence[int], least: int, costs: Sequence[Sequence[int]], most: Sequence[int]
) -> tuple[int, int] | None:
    """How many pipelines y ≥ 0, fractions too, are in all at least and at most; None: not known, or none keep to all.

    A sum of all conditions, each at its price, in which every pipeline counts 1 or more (or 1 or less) says so.
    """
    limits = np.maximum(np.array(most, dtype=np.float64), 1)
    rows = csr_array(np.vstack([np.array(costs) / limits[:, None], -np.array(worth)[None] / max(1, least)]))
    ends = list[int]()
    for sign in (-1, 1):
        found = glop.most(np.full(len(worth), float(sign)), rows, np.append(most / limits, -min(1, least)))
        if found is None:
            return None
        *prices, each = (int(ldexp(max(0.0, one), _EXACT)) for one in found.prices / np.append(limits, max(1, least)))
        sums = [
            sum(price * cost for price, cost in zip(prices, some, strict=True)) - each * one
            for one, *some in zip(worth, *costs, strict=True)
        ]
        total = sum(price * limit for price, limit in zip(prices, most, strict=True)) - each * least
        counts = min(sums) if sign > 0 else -min(sums)  # of a pipeline at least, or at most where sums are less
        if counts <= 0:
            return None
        ends.append(total // counts if sign > 0 else -(total // counts))
    return ends[0], ends[1]


def whole_numbers(
    worth: Sequence[int], least: int, costs: Sequence[Sequence[int]], most: Sequence[int]
) -> tuple[bool, list[int] | None]:
    """As `counted`, with rows that these imply: how many pipelines there are, and what all say together."""
    ends = between(worth, least, costs, most)
    if ends is not None and ends[0] > ends[1]:
        return True, None
    rows, limits = [*costs], [*most]
    if ends is not None:
        rows, limits = [*rows, [1] * len(worth)], [*limits, ends[1]]
    if implied := combined(worth, rows, limits):
        rows, limits = [*rows, implied[0]], [*limits, implied[1]]
    none, numbers = counted(worth, least, rows, limits)
    if none or numbers or ends is None or ends[1] - ends[0] >= _NUMBERS:
        return none, numbers
    return all(_none_of(number, worth, least, costs, most) for number in range(ends[0], ends[1] + 1)), None


def _none_of(
    number: int, worth: Sequence[int], least: int, costs: Sequence[Sequence[int]], most: Sequence[int]
) -> bool:
    """Whether it is proven that no `number` pipelines keep to all: what each has at least is taken off first."""
    fewest, cheapest = min(worth), [min(row) for row in costs]
    kept = [kind for kind, one in enumerate(worth) if one > fewest]
    some, left = [worth[kind] - fewest for kind in kept], least - number * fewest
    rows = [[row[kind] - one for kind in kept] for row, one in zip(costs, cheapest, strict=True)]
    limits = [limit - number * one for limit, one in zip(most, cheapest, strict=True)]
    if min(limits) < 0 or (left > 0 and not kept):
        return True
    if left <= 0:
        return False
    rows, limits = [*rows, [1] * len(kept)], [*limits, number]
    if implied := combined(some, rows, limits):
        rows, limits = [*rows, implied[0]], [*limits, implied[1]]
    return counted(some, left, rows, limits) == (True, None)


def undominated(worth: Sequence[int], costs: Sequence[Sequence[int]]) -> list[int]:
    """Which kinds no other one is worth as much as and costs as little as in each row; of equal ones the first."""
    table = np.ascontiguousarray(np.array([[-one for one in worth], *costs], dtype=np.int64).T)
    order = np.lexsort(table.T[::-1])
    if FILLING is not None:
        found: list[int] = FILLING.undominated(np.zeros(len(table), dtype=np.int64), table, order).tolist()
        return found
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
