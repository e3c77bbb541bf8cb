"""Varuna's grid: alike pipelines, the best of all shapes, idle nodes where none fits exactly."""

import pytest
from hypothesis import given, settings

from solvers.check.replan.judge import pipeline_us
from solvers.ir import InvalidInput, Limits, ReplanProblem, Status
from solvers.replan.even_placements import near_even
from solvers.replan.symmetric import Symmetric, even_shares
from tests.solvers.replan.brute_force import fits
from tests.solvers.replan.clusters import before, grid
from tests.strategies import replan_problems


def test_seven_nodes_leave_one_idle() -> None:
    problem = grid(2, 4, 32, 64, failed=[7], memory_bytes=20_000)
    solution = Symmetric(batches="equal").solve(problem, Limits())
    assert solution.plan is not None
    shapes = {(pipeline.layers, pipeline.microbatches) for pipeline in solution.plan.pipelines}
    assert len(shapes) == 1
    assert sum(len(pipeline.layers) for pipeline in solution.plan.pipelines) <= 7


@settings(max_examples=200, deadline=None)
@given(problem=replan_problems(failure=False))
def test_no_grid_is_faster(problem: ReplanProblem) -> None:
    splits = Symmetric().splits(problem)
    best: int | None = None
    for depth in range(1, min(problem.max_depth, problem.layers, problem.nodes) + 1):
        for degree in range(1, min(problem.nodes // depth, problem.microbatches) + 1):
            most = -(-problem.microbatches // degree)
            for layers in near_even(problem.layers, depth, 1000):
                if fits(problem, layers, most):
                    sync = problem.sync_us + problem.layer_sync_us * max(layers) if degree > 1 else 0
                    time = pipeline_us(problem, layers, most) + sync
                    best = time if best is None else min(best, time)
    if splits is None:
        assert best is None
        return
    layers, most = splits[0]
    sync = problem.sync_us + problem.layer_sync_us * max(layers) if len(splits) > 1 else 0
    shown = pipeline_us(problem, layers, most) + sync
    assert shown == best


def test_equal_means_equal() -> None:
    problem = before(grid(1, 7, 4, 12))
    assert len({share for _, share in Symmetric(batches="equal").splits(problem) or ()}) == 1
    assert sorted({share for _, share in Symmetric().splits(problem) or ()}) == [1, 2]
    assert even_shares(7, 3) == [3, 2, 2]


def test_a_grid_of_one_depth() -> None:
    problem = before(grid(4, 3, 8, 12))
    assert [len(layers) for layers, _ in Symmetric().grid(problem, 11, 4) or ()] == [4, 4]
    assert Symmetric().grid(problem, 3, 4) is None


def test_unknown_rules_are_refused() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'equal'"):
        Symmetric(batches="equall")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="most_placements is 0"):
        Symmetric(most_placements=0)


def test_stages_that_must_be_uneven_are_left_to_others() -> None:
    uneven = before(grid(2, 1, 4, 1, first_static_bytes=2000, memory_bytes=3300, max_depth=2))
    assert Symmetric().solve(uneven, Limits()).status is Status.UNKNOWN
