"""Algorithm 1 [R]: the paper's example, its rules one by one, and its choice between re-planning and rerouting."""

import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.ir import InvalidInput, Limits, Status
from solvers.replan.algorithm1 import Algorithm1, near_even_depths, proportional
from tests.solvers.replan.clusters import before, grid

LIMITS = Limits()


def test_seven_nodes_of_four_pipelines_become_three() -> None:
    problem = grid(2, 4, 32, 64, failed=[7], memory_bytes=20_000)
    splits = Algorithm1().splits(problem)
    assert splits is not None
    assert [len(layers) for layers, _ in splits] == [3, 2, 2]
    assert [share for _, share in splits] == [28, 18, 18]
    assert splits[0][0] == (11, 11, 10)


def test_depths_differ_by_one_and_stay_in_their_range() -> None:
    assert near_even_depths(7, 3, 1, 16) == [3, 2, 2]
    assert near_even_depths(7, 3, 3, 16) == []
    assert near_even_depths(7, 2, 1, 3) == [3, 3]
    assert near_even_depths(2, 3, 1, 16) == []


def test_microbatches_follow_the_nodes() -> None:
    assert proportional([3, 2, 2], 16) == [7, 5, 4]
    assert proportional([9, 1, 1], 3) == [1, 1, 1]


@settings(max_examples=200, deadline=None)
@given(depths=st.lists(st.integers(1, 9), min_size=1, max_size=8), more=st.integers(0, 40))
def test_every_microbatch_is_dealt_and_nobody_is_left_out(depths: list[int], more: int) -> None:
    shares = proportional(depths, len(depths) + more)
    assert sum(shares) == len(depths) + more
    assert min(shares) >= 1


def test_delta_bounds_the_degrees_until_nothing_fits() -> None:
    problem = before(grid(1, 6, 4, 24, sync_us=10**6))
    assert len(Algorithm1(delta=0).splits(problem) or ()) == 6
    assert 4 <= len(Algorithm1(delta=2).splits(problem) or ()) <= 6
    assert len(Algorithm1(delta=5).splits(problem) or ()) == 1
    tight = msgspec.structs.replace(problem, memory_bytes=2600)
    assert [len(layers) for layers, _ in Algorithm1(delta=0).splits(tight) or ()] == [2, 2, 2]


def test_the_depth_range_is_a_parameter() -> None:
    problem = before(grid(4, 2, 8, 8))
    assert all(len(layers) >= 4 for layers, _ in Algorithm1(least_depth=4).splits(problem) or ())
    assert all(len(layers) <= 2 for layers, _ in Algorithm1(most_depth=2).splits(problem) or ())


def test_nodes_beyond_the_deepest_pipelines_stay_idle() -> None:
    problem = before(grid(3, 2, 8, 2, max_depth=2, data_parallel=2))
    assert [len(layers) for layers, _ in Algorithm1().splits(problem) or ()] == [2, 2]


def test_rerouting_wins_on_short_intervals_and_loses_on_long_ones() -> None:
    short = grid(4, 8, 32, 64, failed=[5], restart_us=10**7, expected_interval_us=2 * 10**7)
    long = msgspec.structs.replace(short, expected_interval_us=10**12)
    quick, patient = Algorithm1().solve(short, LIMITS), Algorithm1().solve(long, LIMITS)
    assert quick.plan is not None and quick.plan.policy == "reroute"
    assert patient.plan is not None and patient.plan.policy == "dynamic"
    assert quick.solver == patient.solver == "algorithm1"


def test_it_must_know_where_to_search() -> None:
    with pytest.raises(InvalidInput, match="neither data_parallel nor current"):
        Algorithm1().solve(before(grid(2, 2, 4, 4, data_parallel=None)), LIMITS)
    assert Algorithm1().solve(grid(2, 2, 4, 4, failed=[1], data_parallel=None), LIMITS).status is Status.FEASIBLE


@pytest.mark.parametrize("parameter", ["delta", "least_depth", "most_depth", "most_placements"])
def test_parameters_without_meaning_are_refused(parameter: str) -> None:
    with pytest.raises(InvalidInput, match=f"{parameter} is -1"):
        Algorithm1(**{parameter: -1})


def test_a_plan_beyond_the_heuristic_is_unknown() -> None:
    uneven = before(grid(2, 1, 4, 1, first_static_bytes=2000, memory_bytes=3300, max_depth=2))
    solution = Algorithm1().solve(uneven, LIMITS)
    assert solution.status is Status.UNKNOWN
    assert "exact-replan" in (solution.reason or "")


def test_2048_nodes_warm_take_no_time() -> None:
    problem = before(grid(16, 128, 80, 2048, failed=[1, 20, 300]))
    solver = Algorithm1()
    solver.splits(problem)

    def once() -> float:
        began = time.process_time()
        solver.splits(problem)
        return time.process_time() - began

    assert min(once() for _ in range(20)) < 0.001
