"""The relaxation: below every decision's lane time, with exactly the problem's memory."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.engines import Answer, solve
from solvers.ir import LayoutPlan, LayoutProblem, Limits, Status
from solvers.layout.evaluate import Instance, device_bytes, evaluate, instance, least_buffers
from solvers.layout.exact.local import filled, fits
from solvers.layout.exact.model import Relaxation, memory_model, relaxation
from tests.solvers.layout.brute_force import decisions, random_problem
from tests.strategies import layout_plans, layout_problems


def fixed(model: Relaxation, plan: LayoutPlan) -> Answer:
    """The model's optimum where this decision is taken."""
    start = model.start(plan)
    known = ~np.isnan(start)
    lower, upper = (np.where(known, start, limit) for limit in (model.model.lower, model.model.upper))
    return solve(replace(model.model, lower=lower, upper=upper), Limits(time_s=20), "highs")


def with_buffers(given: Instance, plan: LayoutPlan, extra: int) -> LayoutPlan:
    """The decision with enough buffers, and some more that chunks could use."""
    least, others = least_buffers(given, plan.persistent), len(given.problem.chunks) - len(plan.persistent)
    return LayoutPlan(persistent=plan.persistent, buffers=min(others, least + extra), policies=plan.policies)


@settings(max_examples=150)
@given(st.data(), layout_problems(max_blocks=7, max_chunks=6))
def test_no_decision_lies_below_the_relaxation(data: st.DataObject, problem: LayoutProblem) -> None:
    instance_ = instance(problem)
    plan = with_buffers(instance_, data.draw(layout_plans(problem)), data.draw(st.integers(0, 4)))
    answer = fixed(relaxation(instance_), plan)
    if not fits(instance_, plan):
        assert answer.status is Status.INFEASIBLE
        return
    assert answer.status is Status.OPTIMAL
    assert answer.objective is not None
    assert answer.objective <= evaluate(instance_, plan).end_us + 1e-4


def test_decisions_of_long_transfers_lie_above_too() -> None:
    """Every tenth decision of tiny problems whose traffic is as long as their compute; many lie on the bound."""
    compared = tight = 0
    for seed in range(20):
        problem = random_problem(seed)
        given_ = instance(problem)
        fitting = [plan for plan in decisions(problem) if fits(given_, plan)]
        model = relaxation(given_)
        for plan in fitting[seed % 7 :: max(7, len(fitting) // 20)]:
            objective, end = fixed(model, plan).objective, evaluate(given_, plan).end_us
            assert objective is not None
            assert objective <= end + 1e-4
            compared += 1
            tight += objective >= end - 1e-4
    assert compared > 60
    assert tight > compared / 2


def test_a_known_decision_bounds_the_model() -> None:
    problem = random_problem(0)
    given_ = instance(problem)
    plan = filled(given_, range(len(problem.chunks)), ["keep"] * len(problem.blocks))
    assert plan is not None
    end = evaluate(given_, plan).end_us
    assert fixed(relaxation(given_, plan, end), plan).status is Status.OPTIMAL
    assert fixed(relaxation(given_, plan, end // 2), plan).status is Status.INFEASIBLE


@pytest.mark.parametrize("seed", range(12))
def test_the_memory_model_finds_the_least_device_memory(seed: int) -> None:
    problem = random_problem(seed)
    given_ = instance(problem)
    roomy = instance(replace_bytes(problem, device=10**9))
    least = min(device_bytes(given_, plan) for plan in decisions(problem) if fits(roomy, plan))
    model = memory_model(given_)
    answer = solve(model.model, Limits(time_s=20), "highs")
    assert (answer.status, answer.objective) == (Status.OPTIMAL, least)
    assert answer.x is not None
    plan = model.plan(answer.x)
    assert device_bytes(given_, plan) == least
    assert fits(roomy, plan)


def replace_bytes(problem: LayoutProblem, device: int) -> LayoutProblem:
    """The same on another device."""
    return msgspec.structs.replace(problem, device_bytes=device)
