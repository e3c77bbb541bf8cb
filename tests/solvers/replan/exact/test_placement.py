"""Best splits against every split there is."""

import random

import pytest

from solvers.ir import ReplanProblem
from solvers.replan.exact.bounds import StageLimits
from solvers.replan.exact.placement import best_split, every_split_within, splits_within
from tests.solvers.replan.exact.problems import all_times_us, random_problem


def _case(seed: int) -> tuple[ReplanProblem, StageLimits, int, int]:
    """A problem, limits, a depth and a number of microbatches; often at most so many layers a stage that it hurts."""
    source, problem = random.Random(seed), random_problem(seed, layers=10)
    depth = source.randint(1, min(6, problem.layers))
    share = -(-problem.layers // depth)
    fullest = source.choice([problem.layers, problem.layers, share + 1, share])
    return problem, StageLimits(problem, fullest), depth, source.randint(1, 12)


@pytest.mark.parametrize("seed", range(150))
def test_the_best_split_is_that_of_all_splits(seed: int) -> None:
    problem, limits, depth, count = _case(seed)
    times = all_times_us(problem, depth, count, limits.fullest)
    placed = best_split(limits, depth, count)
    if placed.layers is None:
        assert not times
        return
    assert placed.time_us == placed.bound_us == min(times.values()) == times[placed.layers]


@pytest.mark.parametrize("seed", range(60))
def test_a_limit_lets_through_what_ends_in_time(seed: int) -> None:
    problem, limits, depth, count = _case(seed)
    times = all_times_us(problem, depth, count, limits.fullest)
    for limit in {max(0, time_us + more) for time_us in times.values() for more in (-1, 0)}:
        within = {layers: time_us for layers, time_us in times.items() if time_us <= limit}
        every = every_split_within(limits, depth, count, limit, 10_000)
        assert every.complete and len(every.layers) == len(within)
        listed = zip(map(tuple, every.layers.tolist()), every.times_us.tolist(), strict=True)
        assert dict(listed) == within
        some = splits_within(limits, depth, count, limit, 10_000)
        assert min(some.times_us.tolist(), default=None) == min(within.values(), default=None)
        if within:
            assert limits.may_end(depth, count, limit), "the relaxation must let through what is possible"
            assert limits.most_microbatches(depth, limit) >= min(count, problem.microbatches)


def test_front_stages_take_the_layers_left_over_and_a_head_takes_them_away() -> None:
    problem = _large(last_extra_us=(0, 0))
    even = best_split(StageLimits(problem, 80), 14, 40)
    assert even.layers == (6,) * 10 + (5,) * 4 and even.time_us == even.bound_us
    headed = best_split(StageLimits(_large(last_extra_us=(2000, 4000)), 80), 14, 40)
    assert headed.layers is not None and headed.layers[-1] == 3, "a head of two layers' time takes the place of two"
    assert headed.time_us == headed.bound_us


def test_with_few_microbatches_the_first_stage_takes_more_than_its_share() -> None:
    """Its backward of one microbatch waits anyway until the last stage has seen the first."""
    placed = best_split(StageLimits(_large(last_extra_us=(0, 0)), 80), 16, 16)
    assert placed.time_us == placed.bound_us == 462_000  # 465,000 with five layers each
    assert placed.layers is not None and placed.layers[0] == 6 and placed.layers[-1] == 4


def test_many_microbatches_are_enumerated_without_comparing_responses() -> None:
    placed = best_split(StageLimits(_large(last_extra_us=(1000, 2000)), 80), 12, 300)
    assert placed.time_us == placed.bound_us


def test_what_is_too_much_to_look_at_leaves_a_valid_bound() -> None:
    limits = StageLimits(_large(last_extra_us=(0, 0), p2p_us=300), 80)
    narrow, wide = best_split(limits, 16, 14, most=3), best_split(limits, 16, 14, most=5000)
    assert narrow.time_us is not None and wide.time_us is not None
    assert narrow.bound_us <= wide.bound_us == wide.time_us < narrow.time_us


def _large(last_extra_us: tuple[int, int], p2p_us: int = 0) -> ReplanProblem:
    return ReplanProblem(
        name="large",
        nodes=2048,
        microbatches=2048,
        layers=80,
        forward_us=1000,
        backward_us=2000,
        first_extra_us=(0, 0),
        last_extra_us=last_extra_us,
        p2p_us=p2p_us,
        sync_us=0,
        memory_bytes=10**12,
        layer_static_bytes=1,
        layer_activation_bytes=1,
        first_static_bytes=0,
        last_static_bytes=0,
        max_depth=16,
    )
