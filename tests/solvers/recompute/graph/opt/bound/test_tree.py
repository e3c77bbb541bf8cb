"""The certified bound against brute force and the exact model, and the small mathematics that it rests on."""

import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from solvers.check.recompute_graph.bound import add_up
from solvers.ir import Limits, RecomputeGraphProblem, Status
from solvers.recompute.graph import OptMilp
from solvers.recompute.graph.opt.bound.cut import CutRelaxation
from solvers.recompute.graph.opt.bound.patterns import LayerView, Prices, all_patterns, grown_patterns, leanest
from solvers.recompute.graph.opt.bound.shapes import general_shapes, layered_shapes
from solvers.recompute.graph.opt.bound.tree import BoundSearch
from solvers.recompute.graph.opt.bound.windows import packed, packings
from solvers.recompute.graph.opt.layers import Layers, find_layers
from solvers.recompute.graph.opt.planning.pack import Packing
from solvers.recompute.graph.replay import instance, replay
from tests.soaking import in_soak
from tests.solvers.recompute.graph.brute_force import layered, optimum
from tests.solvers.recompute.graph.layered import transformer


def bounded(problem: RecomputeGraphProblem, leaves: int) -> BoundSearch | None:
    """The best cut's search after so many leaves."""
    given_problem = instance(problem)
    layers = find_layers(given_problem)
    shapes = [*general_shapes(given_problem), *(layered_shapes(given_problem, layers) if layers else [])]
    best: BoundSearch | None = None
    for shape in shapes:
        search = BoundSearch(CutRelaxation(given_problem, shape))
        if search.root(10.0) and (best is None or search.bound_us > best.bound_us):
            best = search
    if best is not None:
        best.run(lambda: float("inf"), time.perf_counter() + 20, leaves, lambda: False)
    return best


@pytest.mark.parametrize("part", [*range(3), *map(in_soak, range(3, 10))])
def test_bounds_of_a_hundred_tiny_instances_never_pass_the_optimum(part: int) -> None:
    compared = beyond_base = 0
    for seed in range(20 * part, 20 * part + 20):
        problem = layered(seed, 1 + seed % 3)
        best, base = optimum(problem), sum(op.time_us for op in problem.ops)
        search = bounded(problem, leaves=6)
        if search is None or best is None:
            continue
        assert base + search.bound_us <= best, seed
        assert add_up(problem, search.certificate()) == ([], base + search.bound_us)
        compared += 1
        beyond_base += search.bound_us > 0
    assert compared >= 8
    assert beyond_base >= 0.5 * compared


def test_the_exact_model_agrees_that_the_bound_is_one() -> None:
    for seed in range(12):
        problem = layered(seed, 2)
        exact = OptMilp().solve(problem, Limits(time_s=20.0))
        search = bounded(problem, leaves=20)
        if exact.status is Status.OPTIMAL and search is not None:
            assert exact.objective is not None
            assert exact.base is not None
            assert exact.base + search.bound_us <= exact.objective, seed


def test_more_leaves_never_prove_less() -> None:
    problem = transformer(layers=4, position=0.4)
    few, many = bounded(problem, leaves=2), bounded(problem, leaves=30)
    assert few is not None
    assert many is not None
    assert 0 < few.bound_us <= many.bound_us
    few.run(lambda: float("inf"), time.perf_counter() + 20, 30, lambda: False, patience=1)
    assert few.leaves < many.leaves  # some leaf brought nothing
    assert few.bound_us <= many.bound_us


def test_a_search_cut_off_in_mid_split_still_covers_everything() -> None:
    problem = transformer(layers=4, position=0.4)
    search = bounded(problem, leaves=2)
    assert search is not None
    base = sum(op.time_us for op in problem.ops)
    for slack in (0.0, 0.004, 0.012, 0.02, 0.03, 0.05):
        search.run(lambda: float("inf"), time.perf_counter() + slack, 200, lambda: False)
        assert add_up(problem, search.certificate()) == ([], base + search.bound_us)


@given(st.dictionaries(st.integers(1, 12), st.integers(0, 9), max_size=4), st.integers(0, 30))
def test_the_worth_of_a_window_is_that_of_its_best_packing(prices: dict[int, int], capacity: int) -> None:
    counts = [range(capacity // spent + 1) for spent in prices]
    best = max(
        sum(n * worth for n, worth in zip(ns, prices.values(), strict=True))
        for ns in itertools.product(*counts)
        if sum(n * spent for n, spent in zip(ns, prices, strict=True)) <= capacity
    )
    assert packed(prices, capacity) == best
    found = packings(list(prices), capacity, 10_000) or [{}]
    assert max(sum(n * prices[spent] for spent, n in option.items()) for option in found) == best


def test_layers_are_found_where_they_repeat() -> None:
    assert find_layers(instance(transformer(layers=5, position=0.5))) == Layers(first=1, size=9, count=5)
    assert find_layers(instance(transformer(layers=1, position=0.5))) is None


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(0, 8)))
def test_patterns_keep_what_they_are_computed_from(chosen: set[int]) -> None:
    given_problem = instance(transformer(layers=3, position=0.5))
    layers = find_layers(given_problem)
    assert layers is not None
    view = LayerView(given_problem, layers, 1)
    pattern = view.closed(chosen)
    kept = view.kept(pattern)
    assert pattern <= chosen
    assert not kept & pattern
    for k in pattern:
        assert all(j in kept or j in pattern for j in view.inputs[k])
    for k, needed in enumerate(view.needed):
        assert not needed or k in kept or k in pattern


def test_grown_patterns_find_the_cheapest_that_enumeration_finds() -> None:
    given_problem = instance(transformer(layers=3, position=0.5))
    layers = find_layers(given_problem)
    assert layers is not None
    view = LayerView(given_problem, layers, 1)
    for byte in (0.05, 0.2, 0.6):
        prices = Prices(byte, {10: 4.0, 18: 7.0, 60: 20.0})
        best = all_patterns(view, prices, 1)[0]
        assert best in grown_patterns(view, prices, [frozenset(), leanest(view)], 30)


def test_packing_computes_everything_again_once_and_in_time() -> None:
    problem = transformer(layers=4, position=0.9)
    given_problem = instance(problem)
    layers = find_layers(given_problem)
    assert layers is not None
    view = LayerView(given_problem, layers, 1)
    windows = [t for t in range(layers.end, len(given_problem)) if given_problem.comm[t]]
    uses = [min((u for u in users if u >= layers.end), default=None) for users in given_problem.users]
    for pattern in all_patterns(view, Prices(0.3, {}), 40):
        again = [layers.op(layer, k) for layer in range(4) for k in pattern]
        recomputed = Packing(given_problem, again, uses, 60).run(windows)
        assert sorted(i for run in recomputed for i in run) == sorted(again)
        roomy = instance(replace(problem, budget_bytes=10**9))
        assert replay(roomy, recomputed).violation is None
