"""Mixes of policies against all multisets; bounds stay bounds where the search is cut short."""

import random
from itertools import combinations_with_replacement

import numpy as np
import pytest

from solvers.recompute.layer.blend import Blend, best_mix, best_pair
from solvers.recompute.layer.mix import Menu, least_bound, peak_bounds, price


def random_menu(seed: int) -> Menu:
    """Policies of a trade-off with noise, as a front has them; one of them fits alone."""
    source = random.Random(seed)
    count, layers = source.randint(1, 9), source.randint(1, 5)
    share = np.array([source.randint(0, 40) for _ in range(count)])
    time_us = np.maximum(0, 50 - share + np.array([source.randint(-9, 9) for _ in range(count)]))
    working = np.array([source.randint(0, 30) for _ in range(count)])
    alone = layers * share + working
    return Menu(time_us, share, working, layers, source.randint(int(alone.min()), int(alone.max())))


def measured(menu: Menu, mix: tuple[int, ...]) -> int | None:
    """The time of a policy for each layer; None where they do not fit."""
    chosen = list(mix)
    fits = menu.share_bytes[chosen].sum() + menu.working_bytes[chosen].max() <= menu.room_bytes
    return int(menu.time_us[chosen].sum()) if fits else None


def tried(menu: Menu, most: int) -> int:
    """The least time of any multiset with at most so many different policies."""
    every = combinations_with_replacement(range(len(menu.time_us)), menu.layers)
    times = [measured(menu, mix) for mix in every if len(set(mix)) <= most]
    return min(time for time in times if time is not None)


def alone(menu: Menu) -> int:
    fits = np.flatnonzero(menu.layers * menu.share_bytes + menu.working_bytes <= menu.room_bytes)
    return int(fits[menu.time_us[fits].argmin()])


def spread(mix: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    return tuple(policy for policy, layers in mix for _ in range(layers))


@pytest.mark.parametrize("seed", range(150))
def test_mixes_are_exact(seed: int) -> None:
    menu = random_menu(seed)
    single = alone(menu)
    known = menu.layers * int(menu.time_us[single])
    bounds = peak_bounds(menu, known)
    best = tried(menu, menu.layers)
    assert least_bound(bounds, known) <= best
    pair = best_pair(menu, bounds, single)
    assert pair.time_us == tried(menu, 2) == measured(menu, spread(pair.mix))
    for start in (pair, Blend(((single, menu.layers),), known, known)):
        mix = best_mix(menu, bounds, start, 10**6)
        assert mix.time_us == mix.bound == best == measured(menu, spread(mix.mix))


def test_a_search_cut_short_keeps_a_valid_bound() -> None:
    cut = 0
    for seed in range(150):
        menu = random_menu(seed)
        known = menu.layers * int(menu.time_us[alone(menu)])
        bounds = peak_bounds(menu, known)
        start = Blend(((alone(menu), menu.layers),), known, known)
        best = tried(menu, menu.layers)
        for work in (0, 100, 150, 250):
            found = best_mix(menu, bounds, start, work)
            assert found.bound <= best <= found.time_us
            cut += found.bound < best
    assert cut >= 20


@pytest.mark.parametrize("seed", range(40))
def test_a_price_shares_layers_out_as_no_mix_can(seed: int) -> None:
    """At its price no assignment of the layers within the room beats the two policies it names."""
    menu = random_menu(seed)
    every = np.arange(len(menu.time_us))
    found = price(menu, every, menu.layers, menu.room_bytes)
    if found is None:
        assert menu.layers * menu.share_bytes.min() > menu.room_bytes
        return
    priced = menu.time_us + found.per_byte * menu.share_bytes
    bound = menu.layers * priced.min() - found.per_byte * menu.room_bytes
    fitting = [
        sum(int(menu.time_us[p]) for p in mix)
        for mix in combinations_with_replacement(range(len(menu.time_us)), menu.layers)
        if sum(int(menu.share_bytes[p]) for p in mix) <= menu.room_bytes
    ]
    assert bound <= min(fitting) + 1e-6
    assert priced[found.fast] == pytest.approx(priced.min())
    assert priced[found.light] == pytest.approx(priced.min())
