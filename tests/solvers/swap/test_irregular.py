"""Instances that look like no transformer: the same by name, and bounded closely all the same."""

import math
from typing import get_args

import pytest

from solvers.check.swap.floor import floor_us
from solvers.check.swap.judge import judge_swap
from solvers.ir import Limits, SwapPlan, SwapProblem
from solvers.swap import MilpSwap
from solvers.swap.evaluate import instance, least_budget
from solvers.swap.floor import floor_ticks
from solvers.swap.instances import llama2
from solvers.swap.irregular import Irregular, Order
from solvers.swap.polish import Incumbent, offer_orders


@pytest.mark.parametrize("order", get_args(Order))
@pytest.mark.parametrize("launches", [False, True])
def test_plans_are_judged_and_bounds_are_what_the_judge_proves(order: Order, launches: bool) -> None:
    problem = Irregular(7, 120, order, launches=launches).build()
    assert problem == Irregular(7, 120, order, launches=launches).build()
    assert least_budget(problem) < problem.budget_bytes < max(problem.memory_bytes)
    answer = MilpSwap(whole_tensors=0).solve(problem, Limits(time_s=math.inf, work=0.05))
    assert isinstance(answer.plan, SwapPlan)
    verdict = judge_swap(problem, answer.plan)
    assert not verdict.violations
    assert verdict.objective_us == answer.objective
    assert answer.gap is not None and answer.gap < 0.1
    given = instance(problem)
    floor = math.ceil(floor_ticks(given) * (1 - 1e-9) / given.ticks)
    assert floor_us(problem) == floor > given.whole_us(given.base)
    assert answer.bound is not None and floor <= answer.bound


def test_leaving_ops_out_only_lowers_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    given = instance(Irregular(8, 120).build())
    whole = floor_ticks(given)
    few = floor_ticks(given, time_s=1e-5)
    assert given.base < few < whole
    monkeypatch.setattr("solvers.check.swap.floor.MOST_MOMENTS", 40)
    assert given.base < floor_us(Irregular(8, 120).build()) < whole


@pytest.mark.parametrize(
    "problem",
    [
        llama2(10, 0.7, 10**10),
        Irregular(7, 500, "nested", 0.8, 10**10, 10**10, launches=True).build(),
    ],
    ids=lambda problem: problem.name,
)
def test_nothing_waits_to_return_where_memory_is_ample(problem: SwapProblem) -> None:
    """Swap-ins were issued where memory is short or a swapped tensor is used only: 18 and 22 % above the bound."""
    given = instance(problem)
    best = Incumbent(given)
    offer_orders(given, best)
    assert best.makespan is not None and best.makespan < 1.01 * floor_ticks(given)
    solution = MilpSwap().solve(problem, Limits(time_s=math.inf, work=0.01))
    assert solution.gap is not None and solution.gap < 0.01
    assert solution.plan is not None and judge_swap(problem, solution.plan).objective_us == solution.objective
