"""Paths that turn inside and wait in front: what ends in time keeps to them, and nothing else excludes as much."""

import random

import msgspec
import numpy as np

from solvers.ir import ReplanProblem
from solvers.replan.exact import bounds
from solvers.replan.exact.bounds import StageLimits
from tests.solvers.replan.exact.problems import all_times_us, random_problem


def _few_microbatches(seed: int) -> tuple[ReplanProblem, int, int]:
    """A pipeline with no more microbatches than stages."""
    draw = random.Random(seed)
    layers = draw.randint(4, 11)
    depth = draw.randint(2, min(8, layers))
    microbatches = draw.randint(2, depth)
    problem = msgspec.structs.replace(
        random_problem(seed),
        layers=layers,
        max_depth=depth,
        microbatches=microbatches,
        p2p_us=draw.choice([0, 1, 2, 5, 30]),
        forward_us=draw.randint(0, 6),
        backward_us=draw.randint(0, 12),
        memory_bytes=10**6,
    )
    return problem, depth, microbatches


def test_what_ends_in_time_keeps_to_them() -> None:
    """A path that does not exist, or counts a pass or hop too many, forbids the best split of some of these."""
    for seed in range(250):
        problem, depth, microbatches = _few_microbatches(seed)
        limits, times = StageLimits(problem, problem.layers), all_times_us(problem, depth, microbatches, problem.layers)
        for limit_us in sorted(set(times.values()))[:3]:
            held = limits.held(depth, microbatches, limit_us)
            assert held is not None, seed
            for split in (split for split, time_us in times.items() if time_us <= limit_us):
                behind = np.concatenate([[0], np.cumsum(split[::-1])])
                assert (held.fewest <= behind).all() and (behind <= held.most).all(), seed
                assert (np.array(split[::-1]) <= held.rooms).all(), seed


def test_the_native_extension_says_the_same() -> None:
    if bounds.FILLING is None:
        return
    asked = 0
    for seed in range(300):
        problem, depth, microbatches = _few_microbatches(seed)
        limits = StageLimits(problem, problem.layers)
        paths, rooms = limits.paths.of(depth, microbatches), limits.rooms(depth, microbatches)
        limit_us = random.Random(-seed).randint(0, 40 * problem.layers)
        for front in range(1, problem.layers if paths.turns is not None else 0):
            asked += 1
            held = paths.filled(rooms, problem.layers, limit_us, front)
            assert held == paths.filled_in_python(rooms, problem.layers, limit_us, front), seed
    assert asked > 500


def test_they_exclude_what_nothing_else_does() -> None:
    """32 stages for 134 layers, 16 microbatches: the front holds at most five layers a stage, or those behind fewer."""
    problem = msgspec.structs.replace(
        random_problem(1),
        layers=134,
        max_depth=32,
        microbatches=16,
        forward_us=30_000,
        backward_us=60_000,
        p2p_us=1_500,
        first_extra_us=(0, 0),
        last_extra_us=(30_000, 60_000),
        memory_bytes=10**9,
    )
    limits = StageLimits(problem, 6)
    paths, rooms = limits.paths.of(32, 16), limits.rooms(32, 16)
    low, high = 0, 10**9
    while low < high:  # the least limit that is not excluded without them
        middle = (low + high) // 2
        low, high = (low, middle) if paths.filled(rooms, 134, middle)[-1] >= 134 else (middle + 1, high)
    assert not limits.may_end(32, 16, low)
