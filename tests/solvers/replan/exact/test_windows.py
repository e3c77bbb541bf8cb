"""Paths to and fro between inner stages: they exist, they bind, and they never say too much."""

import random

import msgspec
import numpy as np
import pytest

from solvers.ir import ReplanProblem
from solvers.replan.exact import bounds
from solvers.replan.exact.bounds import StageLimits
from solvers.replan.exact.cheapest import CheapestSplits, Within
from solvers.replan.exact.windows import Windows
from tests.solvers.replan.exact.problems import all_times_us, random_problem


def _case(seed: int) -> tuple[ReplanProblem, StageLimits, int, int, dict[tuple[int, ...], int]]:
    """A pipeline deep and busy enough for windows, and the times of all its splits."""
    source = random.Random(seed)
    layers = source.randint(5, 10)
    depth, microbatches = source.randint(4, min(7, layers)), source.randint(8, 30)
    problem = msgspec.structs.replace(
        random_problem(seed),
        layers=layers,
        max_depth=depth,
        microbatches=microbatches,
        p2p_us=source.choice([0, 1, 2, 5, 30]),
        memory_bytes=10**6,
    )
    times = all_times_us(problem, depth, microbatches, layers)
    return problem, StageLimits(problem, layers), depth, microbatches, times


def test_what_ends_in_time_keeps_to_the_windows_at_any_price() -> None:
    """A window that is no path, or counts a pass or hop too many, forbids the best split of some of these."""
    bind = 0
    for seed in range(60):
        problem, limits, depth, microbatches, times = _case(seed)
        windows = limits.paths.of(depth, microbatches).windows
        source = np.random.default_rng(seed)
        for limit_us in sorted(set(times.values()))[:3]:
            within = [split for split, time_us in times.items() if time_us <= limit_us]
            held = limits.held(depth, microbatches, limit_us)
            assert held is not None, "the relaxation must let through what is possible"
            for split in within:
                behind = np.concatenate([[0], np.cumsum(split[::-1])])
                assert (held[0] <= behind).all() and (behind <= held[1]).all()
                bind += windows is not None and bool((windows.most(behind, limit_us) == behind[1:]).any())
            prices = source.integers(0, 50, (problem.layers + 1, problem.layers + 1))
            ((least, _),) = CheapestSplits(Within(limits, limit_us, {depth: microbatches}), prices).cheapest(
                [(depth, microbatches)]
            )
            paid = (
                sum(int(prices[sum(split[stage + 1 :]), own]) for stage, own in enumerate(split)) for split in within
            )
            assert least <= min(paid)
    assert bind > 50, "no window is as long as a pipeline takes: nothing was tested"


def test_windows_exclude_what_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen stages for forty layers, stages far from each other: turns between inner ones take their hops."""
    problem = msgspec.structs.replace(
        random_problem(1),
        layers=40,
        max_depth=16,
        microbatches=120,
        forward_us=10,
        backward_us=20,
        p2p_us=60,
        first_extra_us=(0, 0),
        last_extra_us=(0, 0),
        memory_bytes=10**6,
    )
    assert not StageLimits(problem, 40).may_end(16, 120, 24_500)
    monkeypatch.setattr(bounds, "FILLING", None)
    monkeypatch.setattr(Windows, "of", lambda *_: None)
    assert StageLimits(problem, 40).may_end(16, 120, 24_500)
