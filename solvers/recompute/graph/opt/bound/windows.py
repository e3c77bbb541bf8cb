"""What fits into one window: its best use at given prices, and all its packings."""

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

MOST_STEPS, TRIED, TABLED = 250_000, 50, 20_000
"""Limits: partial packings of an exact knapsack, tries for each packing listed, length of the longest table kept."""


def packed(prices: Mapping[int, int], capacity: int) -> int:
    """The most that recomputations of these times (each any number of times) are worth in one window, or a little more.

    Exact where there are few enough partial packings for any checker to go through; else the best price for it all.
    """
    items = [(spent, worth) for spent, worth in prices.items() if spent <= capacity and worth > 0]
    return _packed(tuple(sorted(items, key=lambda item: (-Fraction(item[1], item[0]), item[0]))), capacity)


@lru_cache(maxsize=20_000)
def _packed(items: tuple[tuple[int, int], ...], capacity: int) -> int:
    if not items:
        return 0
    partial, steps = 1, 0
    for spent, _ in items:
        steps += partial * (capacity // spent + 1)
        partial = min(capacity + 1, partial * (capacity // spent + 1))
    if steps > MOST_STEPS:
        return -(-capacity * items[0][1] // items[0][0])
    return _by_table(items, capacity) if capacity <= TABLED else _by_sums(items, capacity)


def _by_table(items: tuple[tuple[int, int], ...], capacity: int) -> int:
    best = [0] * (capacity + 1)
    for spent, worth in items:
        for room in range(spent, capacity + 1):
            best[room] = max(best[room], best[room - spent] + worth)
    return best[capacity]


def _by_sums(items: tuple[tuple[int, int], ...], capacity: int) -> int:
    reached = {0: 0}
    for spent, worth in items:
        for used in sorted(reached):
            value = reached[used]
            for copies in range(1, (capacity - used) // spent + 1):
                place = used + copies * spent
                reached[place] = max(reached.get(place, 0), value + copies * worth)
    return max(reached.values())


def packings(times: list[int], capacity: int, most: int) -> list[dict[int, int]] | None:
    """All maximal multisets of these times (> 0) within the capacity; None where there are more than `most`."""
    found: list[dict[int, int]] = []
    times = sorted(times, reverse=True)
    steps = 0

    def extend(place: int, left: int, chosen: dict[int, int]) -> bool:
        nonlocal steps
        steps += 1
        if place == len(times):
            if all(spent > left for spent in times):
                found.append(dict(chosen))
            return len(found) <= most
        spent = times[place]
        fewest = left // spent if place == len(times) - 1 else 0  # with fewer of the last, one more would fit
        for copies in range(left // spent, fewest - 1, -1):
            if copies:
                chosen[spent] = copies
            fine = extend(place + 1, left - copies * spent, chosen)
            chosen.pop(spent, None)
            if not fine or steps > TRIED * most:
                return False
        return True

    return found if extend(0, capacity, {}) else None
