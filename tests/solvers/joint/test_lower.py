"""Lowered plans: their schedule passes its judge, takes the plan's time, and leaves nothing out that it does."""

import random

import msgspec
import pytest

from solvers.check import check_schedule
from solvers.ir import JointProblem
from solvers.ir.errors import InvalidProblem
from solvers.ir.schedule import Schedule
from solvers.joint.draft import measure, plan_of
from solvers.joint.lower import lower
from solvers.timeline.simulate import simulate
from tests.solvers.joint.brute_force import random_problem
from tests.solvers.joint.drafts import random_draft


def lowered(seed: int) -> tuple[JointProblem, Schedule, int, int] | None:
    """A random plan's schedule, its objective, and how many outputs it sends away; None where the plan is invalid."""
    problem = random_problem(seed % 120)
    problem = msgspec.structs.replace(problem, budget_bytes=problem.budget_bytes + seed % 9)
    given, draft = random_draft(problem, seed)
    found = measure(given, draft)
    if found.violation is not None:
        return None
    return problem, lower(problem, plan_of(given, draft)), found.objective_us, len(draft.away)


def test_schedules_are_right_and_take_the_plans_time() -> None:
    plans = swapped = 0
    for seed in range(160):
        found = lowered(seed)
        if found is None:
            continue
        problem, schedule, objective, away = found
        assert check_schedule(problem, schedule).violations == (), seed
        report = simulate(problem, schedule)
        assert -(-report.makespan_us // 1) == objective, seed
        assert report.peak_bytes <= problem.budget_bytes, seed
        plans, swapped = plans + 1, swapped + (away > 0)
    assert plans > 40 and swapped > 15


def without(schedule: Schedule, number: int) -> Schedule | None:
    """The schedule without an action, or without the waits of one; None where nothing changes."""
    actions = list(schedule.actions)
    if number % 2 and not actions[number // 2].after:
        return None
    if number % 2:
        actions[number // 2] = msgspec.structs.replace(actions[number // 2], after=())
    else:
        gone = actions.pop(number // 2)
        actions = [msgspec.structs.replace(one, after=tuple(a for a in one.after if a != gone.id)) for one in actions]
    return Schedule(lanes=schedule.lanes, actions=tuple(actions))


def test_the_judge_misses_nothing_of_what_a_schedule_does() -> None:
    """Every action is needed, and so is every wait of a release for its copy."""
    source, tried = random.Random(20), 0
    for seed in range(120):
        found = lowered(seed)
        if found is None or not found[3]:
            continue
        problem, schedule = found[:2]
        number = source.randrange(2 * len(schedule.actions))
        changed, action = without(schedule, number), schedule.actions[number // 2]
        if changed is None or (number % 2 and action.do != "release"):
            continue
        assert check_schedule(problem, changed).violations, (seed, action)
        tried += 1
    assert tried > 15


def test_an_invalid_plan_is_refused() -> None:
    for seed in range(400):
        problem = random_problem(seed)
        given, draft = random_draft(problem, seed)
        if measure(given, draft).violation is not None:
            with pytest.raises(InvalidProblem, match="check it with"):
                lower(problem, plan_of(given, draft))
            return
    raise AssertionError("no plan was invalid")
