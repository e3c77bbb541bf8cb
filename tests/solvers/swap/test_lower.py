"""A lowered schedule does exactly what the plan says, whatever order is looked at, and every wait in it is needed."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.check import check_schedule
from solvers.ir import InvalidProblem, Limits, Schedule, Swap, SwapPlan, SwapProblem
from solvers.swap import GreedySwap, lower
from solvers.swap.evaluate import choices_of, evaluate, instance
from solvers.timeline import simulate
from tests.solvers.swap.brute_force import random_problem
from tests.strategies import swap_plans, swap_problems

LIMITS = Limits()


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_timeline_of_a_schedule_is_the_plan_s(data: st.DataObject) -> None:
    problem = data.draw(swap_problems(max_ops=7, max_tensors=5))
    plan = data.draw(swap_plans(problem))
    timeline = evaluate(instance(problem), choices_of(problem, plan))
    if timeline is None:
        return
    schedule = lower(problem, plan)
    assert check_schedule(problem, schedule).violations == ()
    assert simulate(problem, schedule).makespan_us == timeline.makespan / problem.link.ticks


def test_a_plan_of_another_problem_is_refused() -> None:
    for swap in (Swap(tensor="nobody's", swap_in_at=3), Swap(tensor="t0", swap_in_at=99)):
        with pytest.raises(InvalidProblem, match="give a plan of this problem"):
            lower(random_problem(0), SwapPlan(swaps=(swap,)))


def without(schedule: Schedule, action: int, wait: int) -> Schedule:
    """The schedule with one wait dropped."""
    actions = [
        msgspec.structs.replace(a, after=tuple(w for w in a.after if w != wait)) if a.id == action else a
        for a in schedule.actions
    ]
    return msgspec.structs.replace(schedule, actions=tuple(actions))


def test_no_wait_is_implied_by_the_others() -> None:
    dropped = 0
    for seed in range(60):
        problem: SwapProblem = random_problem(seed, max_ops=9, max_tensors=6)
        plan = GreedySwap().solve(problem, LIMITS).plan
        if plan is None or not plan.swaps:
            continue
        schedule = lower(problem, plan)
        for action in schedule.actions:
            for wait in action.after:
                dropped += 1
                assert check_schedule(problem, without(schedule, action.id, wait)).violations, (seed, action, wait)
    assert dropped > 100
