"""What fits into a window: both ways of the knapsack, and the packings, against trying everything."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers.recompute.graph.opt.bound import windows
from solvers.recompute.graph.opt.bound.windows import packed, packings

PRICES = st.dictionaries(st.integers(1, 12), st.integers(-3, 9), max_size=4)


def best_of(prices: dict[int, int], capacity: int) -> int:
    counts = [range(capacity // spent + 1) for spent in prices]
    return max(
        sum(n * worth for n, worth in zip(ns, prices.values(), strict=True))
        for ns in itertools.product(*counts)
        if sum(n * spent for n, spent in zip(ns, prices, strict=True)) <= capacity
    )


@given(PRICES, st.integers(0, 30))
def test_long_windows_are_packed_by_sums_as_short_ones_by_a_table(prices: dict[int, int], capacity: int) -> None:
    """Whatever costs or does not fit is left out."""
    items = tuple((spent, worth) for spent, worth in prices.items() if spent <= capacity and worth > 0)
    best = best_of(dict(items), capacity) if items else 0
    assert packed(prices, capacity) == best
    if items:
        assert windows._by_table(items, capacity) == windows._by_sums(items, capacity) == best


def test_where_there_is_too_much_to_try_the_best_price_is_taken_for_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices of 7 for 3 us and 2 for 1: in 10 us 3 · 7 + 2 = 23 are packed, 10 · 7/3 bound them."""
    prices = {1: 2, 3: 7}
    windows._packed.cache_clear()
    try:
        assert packed(prices, 10) == 23
        monkeypatch.setattr(windows, "MOST_STEPS", 10)
        windows._packed.cache_clear()
        assert packed(prices, 10) == 24  # 70 / 3, rounded up
        assert packed({3: 7, 4: 8}, 10) == 24  # the same; 3 · 7 = 21 at the most in truth
        assert packed({20: 7}, 10) == 0
    finally:
        windows._packed.cache_clear()


def test_a_window_longer_than_a_table_is_as_exact() -> None:
    """25,000 us hold three of 8,000 us at 90 and one of 900 at 9; 25,001 us nothing more."""
    assert windows.TABLED < 25_000
    assert packed({8000: 90, 900: 9}, 25_000) == packed({8000: 90, 900: 9}, 25_001) == 279


@given(st.sets(st.integers(1, 9), max_size=3), st.integers(0, 20))
def test_packings_are_all_multisets_into_which_nothing_more_fits(times: set[int], capacity: int) -> None:
    order = sorted(times, reverse=True)
    maximal = []
    for counts in itertools.product(*(range(capacity // spent + 1) for spent in order)):
        left = capacity - sum(n * spent for n, spent in zip(counts, order, strict=True))
        if left >= 0 and all(spent > left for spent in order):
            maximal.append({spent: n for spent, n in zip(order, counts, strict=True) if n})
    found = packings(list(times), capacity, 10_000)
    assert found is not None
    assert sorted(map(sorted, (each.items() for each in found))) == sorted(map(sorted, (m.items() for m in maximal)))


def test_one_packing_more_than_asked_for_is_none() -> None:
    """10 us of 3 and 2: (3, 0) left 1, (2, 2), (1, 3) left 1, (0, 5): four."""
    assert packings([2, 3], 10, 4) == [{3: 3}, {3: 2, 2: 2}, {3: 1, 2: 3}, {2: 5}]
    assert packings([2, 3], 10, 3) is None
