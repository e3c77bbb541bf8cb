"""Patterns of one layer against every subset of its ops."""

from itertools import chain, combinations

import pytest

from solvers.recompute.graph.opt.bound.patterns import (
    LayerView,
    Pattern,
    Prices,
    all_patterns,
    grown_patterns,
    leanest,
)
from solvers.recompute.graph.opt.layers import find_layers
from solvers.recompute.graph.replay import instance
from tests.solvers.recompute.graph.layered import FORWARD, transformer

PRICES = [Prices(0.05, {}), Prices(0.2, {10: 4.0, 18: 7.0, 60: 20.0}), Prices(0.9, {46: 1.5, 90: 0.0})]


@pytest.fixture(scope="module")
def view() -> LayerView:
    """The second of three layers: nine ops; backward passes read all but the product and its all-reduce."""
    given = instance(transformer(layers=3, position=0.5))
    layers = find_layers(given)
    assert layers is not None
    return LayerView(given, layers, 1)


def subsets(view: LayerView) -> list[Pattern]:
    """Subsets in which every op is read by the backward pass, or by another op of the subset."""
    every = chain.from_iterable(combinations(range(len(view.ops)), count) for count in range(len(view.ops) + 1))
    return [
        frozenset(chosen)
        for chosen in map(set, every)
        if all(view.needed[k] or any(k in view.inputs[child] for child in chosen) for k in chosen)
    ]


def priced(view: LayerView, prices: Prices, pattern: Pattern) -> float:
    """What a pattern's ops cost again, and the bytes of the others that somebody reads."""
    cost = 0.0
    for k, (_, time_us, size, _, comm) in enumerate(FORWARD):
        read = any(k in view.inputs[child] for child in pattern)
        if k in pattern:
            cost += time_us if comm else min(time_us, prices.windows.get(time_us, time_us))
        elif read or view.needed[k]:
            cost += prices.byte * size
    return cost


@pytest.mark.parametrize("prices", PRICES, ids=["bytes", "some windows", "free windows"])
def test_every_pattern_is_listed_by_its_price(view: LayerView, prices: Prices) -> None:
    every = subsets(view)
    costs = sorted(priced(view, prices, pattern) for pattern in every)
    found = all_patterns(view, prices, 10_000)
    assert set(found) == set(every) and len(found) == len(every)
    assert [priced(view, prices, pattern) for pattern in found] == pytest.approx(costs)
    assert all_patterns(view, prices, 7) == found[:7]


@pytest.mark.parametrize("prices", PRICES, ids=["bytes", "some windows", "free windows"])
def test_patterns_grown_from_nothing_begin_with_the_best(view: LayerView, prices: Prices) -> None:
    best = min(priced(view, prices, pattern) for pattern in subsets(view))
    grown = grown_patterns(view, prices, [leanest(view)], 20)
    assert len(grown) == 20 == len(set(grown))
    costs = [priced(view, prices, pattern) for pattern in grown]
    assert costs == sorted(costs)
    assert costs[0] == pytest.approx(best)
    assert set(grown) <= set(subsets(view))


def test_what_a_pattern_keeps_is_what_others_read(view: LayerView) -> None:
    """Dropping scores and dropout keeps qkv, which scores are computed from; the layer's own input is not its own."""
    dropped = frozenset({2, 3})
    assert view.kept(dropped) == {0, 1, 6, 7, 8}
    assert view.kept_bytes(dropped) == sum(FORWARD[k][2] for k in view.kept(dropped))
    assert view.closed({4, 5}) == frozenset()  # the reduced product and its source: for op 6 alone
    assert view.closed({4, 5, 6}) == {4, 5, 6}


def test_the_leanest_pattern_keeps_as_little_as_any(view: LayerView) -> None:
    assert view.kept_bytes(leanest(view)) == min(view.kept_bytes(pattern) for pattern in subsets(view))


def test_a_price_is_that_of_the_window_where_it_is_less_than_the_time() -> None:
    prices = Prices(1.0, {10: 4.0, 20: 30.0})
    assert [prices.of(us, comm=False) for us in (10, 20, 30)] == [4, 20, 30]
    assert prices.of(10, comm=True) == 10  # a communication is hidden by none
