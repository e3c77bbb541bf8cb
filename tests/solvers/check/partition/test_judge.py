"""The partition judge: a story by hand, and every other answer refused or dearer."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers.check.partition.judge import is_feasible, judge_partition
from solvers.ir import PartitionPlan, PartitionProblem
from tests.strategies import partition_plans, partition_problems

STORY = PartitionProblem(
    name="two stages, four layers", stages=2, layers=4, cost_us=((None, 10, 20, 33, None), (None, 12, 24, None, None))
)
"""The first stage has no room for four layers, the second none for three."""


def test_the_objective_is_the_slowest_stage() -> None:
    """2 + 2: max(20, 24) = 24; 3 + 1: max(33, 12) = 33; 1 + 3 does not fit."""
    assert judge_partition(STORY, PartitionPlan(layers=(2, 2))).objective_us == 24
    assert judge_partition(STORY, PartitionPlan(layers=(3, 1))).objective_us == 33


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ((1, 3), "stage 1 has 3 layers, which do not fit: cost_us[1][3] is null"),
        ((2, 1), "layers sums to 3, but the problem has 4 layers"),
        ((4,), "layers has 1 entries, but the problem has 2 stages"),
        ((4, 0), "stage 1 has 0 layers, outside 1…4"),
        ((5, -1), "stage 0 has 5 layers, outside 1…4"),
    ],
)
def test_broken_plans_are_refused(layers: tuple[int, ...], words: str) -> None:
    verdict = judge_partition(STORY, PartitionPlan(layers=layers))
    assert words in verdict.violations
    assert verdict.objective_us is None


@given(partition_problems())
def test_feasible_means_that_some_plan_is_clean(problem: PartitionProblem) -> None:
    every = product(range(1, problem.layers + 1), repeat=problem.stages)
    assert is_feasible(problem) == any(judge_partition(problem, PartitionPlan(layers=p)).clean for p in every)


@given(st.data())
def test_clean_plans_are_those_that_sum_up_and_fit(data: st.DataObject) -> None:
    problem = data.draw(partition_problems())
    plan = data.draw(partition_plans(problem))
    costs = [problem.cost_us[stage][count] for stage, count in enumerate(plan.layers)]
    valid = sum(plan.layers) == problem.layers and None not in costs
    verdict = judge_partition(problem, plan)
    assert verdict.clean == valid
    if valid:
        assert verdict.objective_us == sorted(cost for cost in costs if cost is not None)[-1]
