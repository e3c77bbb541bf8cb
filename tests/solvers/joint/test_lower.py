"""Lowered plans: their schedule passes its judge, takes the plan's time, and leaves nothing out that it does."""

import math
import random

import msgspec
import pytest

from solvers.check import check_schedule
from solvers.check.joint.judge import base_us, judge_joint
from solvers.ir.errors import InvalidProblem
from solvers.ir.schedule import Schedule
from solvers.joint.draft import measure, plan_of
from solvers.joint.lower import lower
from solvers.timeline.simulate import simulate
from tests.soaking import some
from tests.solvers.joint.brute_force import random_problem
from tests.solvers.joint.drafts import random_draft
from tests.solvers.joint.plans import random_plan


@pytest.mark.parametrize("part", some(range(24), of=12))
def test_schedules_of_random_plans_are_right(part: int) -> None:
    """In time and bytes they take what the plan's judge says, whatever the plan decides."""
    swapped = beside = refused = 0
    for seed in range(300 * part, 300 * (part + 1)):
        problem, plan, lean = random_plan(seed)
        verdict = judge_joint(problem, plan)
        if not verdict.clean:
            assert all("a second time" in one or "gone before" in one for one in verdict.violations), seed
            with pytest.raises(InvalidProblem, match="check it with"):
                lower(problem, plan)
            refused += 1
            continue
        schedule, objective = lower(problem, plan), judge_joint(problem, lean).objective_us
        assert verdict.objective_us is not None and objective is not None
        assert check_schedule(problem, schedule).violations == (), seed
        report = simulate(problem, schedule)
        assert math.ceil(report.makespan_us) == objective <= verdict.objective_us, seed
        assert report.peak_bytes <= problem.budget_bytes, seed
        assert report.base_us == base_us(problem), seed
        swapped += bool(plan.swap)
        beside += any(problem.ops[t].comm and problem.ops[t].workspace_bytes and i < t for t, i in plan.compute)
    assert swapped > 250 and beside > 25 and refused > 1


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
        problem = random_problem(seed)
        problem = msgspec.structs.replace(problem, budget_bytes=problem.budget_bytes + seed % 9)
        given, draft = random_draft(problem, seed)
        if not draft.away or measure(given, draft).violation is not None:
            continue
        schedule = lower(problem, plan_of(given, draft))
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
