"""The native filling of stages says what Python says, stage by stage."""

import random

import msgspec
import numpy as np
import pytest

from solvers.ir import ReplanProblem
from solvers.replan.estimate.pipeline import every_batch_us
from solvers.replan.exact import bounds, cheapest
from solvers.replan.exact.bounds import StageLimits
from solvers.replan.exact.cheapest import CheapestSplits, Within
from solvers.replan.exact.market import NEVER
from tests.solvers.replan.exact.problems import all_times_us, random_problem

NATIVE = pytest.mark.skipif(bounds.FILLING is None, reason="the native extension was not built: run make build")


def _case(seed: int, most_layers: int, deepest: int) -> tuple[ReplanProblem, int, int]:
    """A problem with a depth and microbatches, fewer than stages in about a third of them."""
    source = random.Random(seed)
    layers = source.randint(2, most_layers)
    depth, microbatches = source.randint(1, min(deepest, layers)), source.randint(1, 2 * deepest)
    problem = random_problem(seed)
    problem = msgspec.structs.replace(
        problem,
        layers=layers,
        max_depth=depth,
        microbatches=microbatches,
        p2p_us=source.choice([0, 1, 2, 5, 30]),
        forward_us=source.randint(0, 6),
        backward_us=source.randint(0, 12),
        memory_bytes=source.choice([problem.memory_bytes, 10**9]),
    )
    return problem, depth, microbatches


@NATIVE
def test_it_holds_what_python_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Families that do not exist, layers that cost nothing, memory too small and windows are among them."""
    with_windows = with_turns = 0
    for seed in range(800):
        problem, depth, microbatches = _case(seed, 40, 20)
        source = random.Random(-seed)
        limits = StageLimits(problem, source.choice([problem.layers, -(-problem.layers // depth) + 1]))
        paths, twin = limits.paths.of(depth, microbatches), StageLimits(problem, 1).paths.of(depth, microbatches)
        rooms = limits.rooms(depth, microbatches)
        for _ in range(4):
            limit_us = source.randint(0, 40 * problem.layers * microbatches // depth + 200)
            held = paths.filled(rooms, problem.layers, limit_us)
            assert held == twin.filled_in_python(rooms, problem.layers, limit_us), seed
            with_windows += held[-1] == problem.layers and paths.windows is not None
            said = paths.most_in_all(rooms, problem.layers, limit_us), limits.held(depth, microbatches, limit_us)
            with monkeypatch.context() as patched:
                patched.setattr(bounds, "FILLING", None)
                python = StageLimits(problem, limits.fullest)
                most = python.paths.of(depth, microbatches).most_in_all(rooms, problem.layers, limit_us)
                assert said[0] == most, seed
                bounded = python.held(depth, microbatches, limit_us)
            assert (said[1] is None) == (bounded is None), seed
            if said[1] is not None and bounded is not None:
                assert all((one == other).all() for one, other in zip(said[1], bounded, strict=True)), seed
                with_turns += paths.turns is not None
    assert with_windows > 200 and with_turns > 100, "windows and turns have to bind somewhere"


@NATIVE
def test_the_cheapest_splits_are_those_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    found = 0
    for seed in range(200):
        problem, depth, microbatches = _case(seed, 24, 12)
        limits, source = StageLimits(problem, problem.layers), np.random.default_rng(seed)
        limit_us = int(source.integers(0, 40 * problem.layers * microbatches // depth + 300))
        behind, own = np.indices((problem.layers + 1, problem.layers + 1))
        prices = np.where((own >= 1) & (behind + own <= problem.layers), source.integers(0, 30, own.shape), NEVER)
        prices[source.random(own.shape) < 0.1] = NEVER
        shapes = [(depth, microbatches), (depth, max(1, microbatches - 1))]
        said = []
        for native in (bounds.FILLING, None):
            monkeypatch.setattr(cheapest, "FILLING", native)
            for some in (prices, np.where(prices < NEVER, prices // 2, NEVER)):  # what binds stages is remembered
                splits = CheapestSplits(Within(limits, limit_us, {depth: microbatches}), some)
                priced = [(price, split() if price < NEVER else ()) for price, split in splits.cheapest(shapes)]
                said.append((priced, splits.least))
        assert said[:2] == said[2:], seed
        found += said[0][0][0][0] < NEVER
    assert found > 50


@NATIVE
def test_it_counts_the_microbatches_that_end_in_time() -> None:
    assert bounds.FILLING is not None
    for seed in range(300):
        draw = random.Random(seed)
        depth, most, hop_us = draw.randint(1, 9), draw.randint(1, 30), draw.choice([0, 1, 5, 30])
        forward, backward = ([draw.randint(0, 9) for _ in range(depth)] for _ in range(2))
        times = every_batch_us(np.array([forward]), np.array([backward]), most, hop_us)[0]
        for limit_us in (int(times[most]), int(times[most // 2]), draw.randint(0, int(times[most]) + 5)):
            right = int(times.searchsorted(limit_us, side="right")) - 1
            assert bounds.FILLING.most_within(forward, backward, most, hop_us, limit_us) == right, seed


@NATIVE
def test_large_numbers_do_not_overflow() -> None:
    """Steps of up to 2^53 us, and limits beyond all of them; 64 bits hold every product."""
    for seed in range(40):
        source = random.Random(seed)
        depth, microbatches = source.randint(1, 40), source.choice([1, 7, 500, 100_000])
        most_us = 2**53 // (2 * 1000 * (microbatches + depth))
        problem = msgspec.structs.replace(
            random_problem(seed),
            layers=1000,
            max_depth=depth,
            microbatches=microbatches,
            forward_us=source.randint(most_us // 2, most_us),
            backward_us=source.randint(0, most_us),
            memory_bytes=10**15,
        )
        paths, rooms = StageLimits(problem, 1000).paths.of(depth, microbatches), np.full(depth, 1000)
        for limit_us in (0, 10**9, source.randint(0, 2**53), 2**53, 2**61):
            assert paths.filled(rooms, 1000, limit_us) == paths.filled_in_python(rooms, 1000, limit_us), seed


@NATIVE
def test_arrays_that_do_not_belong_together_are_refused() -> None:
    assert bounds.FILLING is not None
    table = np.ones((2, 3), dtype=np.int64)
    filling = bounds.FILLING.Filling(3, 2, 4, (1, 2), (0, 0), (0, 0), 1)
    with pytest.raises(ValueError, match="2 rooms are given for 3 stages: give one for each"):
        filling.held(np.array([1, 2]), 4, 10)
    with pytest.raises(ValueError, match="prices need a row for each number of layers"):
        filling.cheapest(np.array([1, 2, 3]), table[0], 10)


@pytest.mark.parametrize("native", [pytest.param(True, marks=NATIVE), False])
def test_it_never_holds_less_than_a_split_that_ends_in_time(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not native:
        monkeypatch.setattr(bounds, "FILLING", None)
    excluded = 0
    for seed in range(250):
        problem, depth, microbatches = _case(seed, 10, 6)
        limits = StageLimits(problem, problem.layers)
        times = all_times_us(problem, depth, microbatches, problem.layers)
        if times:
            best = min(times.values())
            assert limits.may_end(depth, microbatches, best), seed
            excluded += not limits.may_end(depth, microbatches, best - 1)
    assert excluded > 100, "a relaxation that excludes nothing proves nothing"
