"""A layout plan's schedule takes the plan's time to the microsecond and its peak to the byte, and passes its judge."""

import math
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from solvers.check import check_schedule
from solvers.check.layout.judge import device_peak, host_bytes
from solvers.check.layout.lanes import task_spans
from solvers.ir import InvalidProblem, LayoutPlan, LayoutProblem, Limits, parse_schedule
from solvers.ir.codec import read_problem
from solvers.layout.lower import lower
from solvers.planner import build_solver, solve, solver_names
from solvers.timeline import simulate
from tests.experiments.commands.console import ROOT
from tests.solvers.layout.lowered import planned

SHIPPED = sorted((ROOT / "experiments" / "instances").glob("layout-*.json"))


@settings(max_examples=100)
@given(planned())
def test_random_plans_take_their_objective_and_pass(found: tuple[LayoutProblem, LayoutPlan, int]) -> None:
    problem, plan, objective_us = found
    schedule = lower(problem, plan)
    report = simulate(problem, schedule)
    assert report.makespan_us == objective_us
    assert report.peak_bytes == device_peak(problem, plan)[0]
    exact = replace(problem, device_bytes=report.peak_bytes, host_bytes=host_bytes(problem, plan))
    assert check_schedule(exact, schedule).violations == ()
    for name in ("device_bytes", "host_bytes"):
        least = getattr(exact, name)
        if least:
            assert not check_schedule(replace(exact, **{name: least - 1}), schedule).clean


@settings(max_examples=60)
@given(planned())
def test_every_task_of_the_judge_s_lanes_runs_when_it_says(found: tuple[LayoutProblem, LayoutPlan, int]) -> None:
    """The judge works lanes out of its own (a checkpointed backward pass is one task there, and two actions here)."""
    problem, plan, _ = found
    names = {"net": "0.comm", "cpu": "0.host", "in": "0.in", "out": "0.out"}
    tasks = task_spans(problem, plan)
    theirs = sorted((names[one.lane], one.start_us, one.end_us) for one in tasks if one.lane in names)
    spans = simulate(problem, lower(problem, plan)).spans
    ours = ((one.lane, one.start_us, one.end_us) for one in spans if one.lane in names.values())
    assert sorted(one for one in ours if one[2] > one[1]) == theirs


@settings(max_examples=60)
@given(planned())
def test_every_wait_is_needed(found: tuple[LayoutProblem, LayoutPlan, int]) -> None:
    problem, plan, _ = found
    schedule = lower(problem, plan)
    for number, action in enumerate(schedule.actions):
        for gone in action.after:
            left = replace(action, after=tuple(before for before in action.after if before != gone))
            actions = (*schedule.actions[:number], left, *schedule.actions[number + 1 :])
            assert not check_schedule(problem, replace(schedule, actions=actions)).clean, (action.text(), gone)


def instances() -> Iterator[LayoutProblem]:
    for path in SHIPPED:
        problem, _ = read_problem(path)
        assert isinstance(problem, LayoutProblem)
        yield problem


@pytest.mark.parametrize("name", solver_names("layout"))
def test_shipped_instances_under_every_solver(name: str) -> None:
    """`solve` has the schedule judged; here its time and peak are compared with the plan's."""
    for problem in instances():
        solver = build_solver(name, {})
        answer = solve(solver, problem, Limits(time_s=math.inf, work=0.02))
        if answer.solution.plan is None:
            continue
        assert answer.schedule is not None
        report = simulate(problem, answer.schedule)
        assert report.makespan_us == answer.solution.objective
        assert report.peak_bytes == device_peak(problem, answer.solution.plan)[0]


def test_it_is_text_and_comes_back() -> None:
    for problem in instances():
        plan = build_solver("search", {}).solve(problem, Limits()).plan
        assert plan is not None
        schedule = lower(problem, plan)
        assert parse_schedule(schedule.text()) == schedule


def test_foreign_and_impossible_plans_are_refused() -> None:
    problem = next(instances())
    plan = build_solver("search", {}).solve(problem, Limits()).plan
    assert plan is not None
    with pytest.raises(InvalidProblem, match="give a plan of this problem"):
        lower(problem, replace(plan, policies=plan.policies[1:]))
    with pytest.raises(InvalidProblem, match="give a plan of this problem"):
        lower(problem, replace(plan, persistent=(len(problem.chunks),)))
    with pytest.raises(InvalidProblem, match="give a valid plan"):
        lower(problem, replace(plan, persistent=(), buffers=0))
