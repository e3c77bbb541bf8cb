"""What fits into one window: its best use at given prices, and all its packings."""

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

MOST_STEPS, TRIED = 100_000, 50
"""Partial packings that are looked at before a knapsack is answered by its relaxation, and for each packing listed."""


def packed(prices: Mapping[int, int], capacity: int) -> int:
    """The most that recomputations of these times (each any number of times) are worth in one window, or a little more.

    Partial packings are extended by the best price a microsecond first, and left where what remains could not beat the
    best one; after `MOST_STEPS` of them the best price for the whole window is answered.
    """
    items = [(spent, worth) for spent, worth in prices.items() if spent <= capacity and worth > 0]
    return _packed(tuple(sorted(items, key=lambda item: (-Fraction(item[1], item[0]), item[0]))), capacity)


@lru_cache(maxsize=20_000)
def _packed(items: tuple[tuple[int, int], ...], capacity: int) -> int:
    if not items:
        return 0
    best, steps, states = 0, 0, {capacity: 0}
    for place, (spent, worth) in enumerate(items):
        following = items[place + 1] if place + 1 < len(items) else (1, 0)
        extended: dict[int, int] = {}
        for left, gained in states.items():
            for copies in range(left // spent, -1, -1):
                steps += 1
                if steps > MOST_STEPS:
                    return capacity * items[0][1] // items[0][0]
                rest, total = left - copies * spent, gained + copies * worth
                best = max(best, total)
                if total * following[0] + rest * following[1] <= best * following[0]:
                    break
                extended[rest] = max(extended.get(rest, 0), total)
        states = extended
    return best


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
