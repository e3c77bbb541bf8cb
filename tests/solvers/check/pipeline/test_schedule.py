"""Schedules of whole steps: those that we lower pass, and whatever is dropped, moved or falsified is found."""

import random
from collections.abc import Callable

import msgspec
import pytest
from msgspec.structs import replace

from solvers.check import check_schedule
from solvers.ir import Action, InvalidProblem, Limits, PipelineProblem, Schedule
from solvers.partition.baselines import HeuStep, Lynx
from solvers.partition.lower import lower
from tests.solvers.partition.steps import busy_problem

Edit = Callable[[list[Action], random.Random], None]


@pytest.fixture(scope="module")
def problem() -> PipelineProblem:
    return busy_problem()


@pytest.fixture(scope="module")
def schedule(problem: PipelineProblem) -> Schedule:
    plan = Lynx(hide="all").solve(problem, Limits()).plan
    assert plan is not None
    return lower(problem, plan)


def chosen(actions: list[Action], source: random.Random, *dos: str) -> int:
    return source.choice([number for number, action in enumerate(actions) if action.do in dos])


def drop(*dos: str) -> Edit:
    def edit(actions: list[Action], source: random.Random) -> None:
        gone = actions.pop(chosen(actions, source, *dos))
        for number, action in enumerate(actions):
            if gone.id in action.after:
                actions[number] = replace(action, after=tuple(one for one in action.after if one != gone.id))

    return edit


def change(change_of: Callable[[Action], Action], *dos: str) -> Edit:
    def edit(actions: list[Action], source: random.Random) -> None:
        number = chosen(actions, source, *dos)
        actions[number] = change_of(actions[number])

    return edit


EDITS: dict[str, Edit] = {
    "a stretch dropped": drop("compute"),
    "a collective dropped": drop("collective_start"),
    "a wait dropped": drop("collective_wait"),
    "a recomputation dropped": drop("recompute"),
    "a release dropped": drop("release"),
    "a message dropped": drop("send"),
    "an arrival dropped": drop("recv"),
    "nobody waits for the message": change(lambda one: replace(one, after=()), "recv"),
    "the message waits for nothing": change(lambda one: replace(one, after=()), "send"),
    "the wait waits for nothing": change(lambda one: replace(one, after=()), "collective_wait"),
    "the collective waits for nothing": change(lambda one: replace(one, after=()), "collective_start"),
    "other bytes": change(lambda one: replace(one, bytes=one.bytes + 1), "compute", "recompute", "release"),
    "another op": change(lambda one: replace(one, op=(one.op or 0) + 1), "recompute", "collective_start"),
    "another microbatch": change(lambda one: replace(one, microbatch=1 - (one.microbatch or 0) % 2), "compute"),
    "another peer": change(lambda one: replace(one, peer=0 if one.peer else 2), "send", "recv"),
    "no pass": change(lambda one: replace(one, direction=msgspec.UNSET), "compute", "recompute", "send"),
    "a microbatch that is none": change(lambda one: replace(one, microbatch=99), "release", "recompute"),
}


def test_a_lowered_schedule_passes(problem: PipelineProblem, schedule: Schedule) -> None:
    assert check_schedule(problem, schedule).violations == ()
    assert {action.do for action in schedule.actions} == {
        "compute",
        "recompute",
        "collective_start",
        "collective_wait",
        "release",
        "send",
        "recv",
    }


@pytest.mark.parametrize("name", EDITS)
def test_edited_schedules_are_refused(problem: PipelineProblem, schedule: Schedule, name: str) -> None:
    """Ten random places each; an edit that makes a circle is refused on the way in."""
    for seed in range(10):
        actions = list(schedule.actions)
        EDITS[name](actions, random.Random(seed))
        try:
            edited = replace(schedule, actions=tuple(actions))
        except InvalidProblem:
            continue
        if edited != schedule:
            assert check_schedule(problem, edited).violations, (name, seed)


def test_a_recomputation_moved_out_of_its_inputs_reach_is_found(problem: PipelineProblem, schedule: Schedule) -> None:
    """Each recomputation of op 1, moved before the one of op 0 that it reads."""
    actions, ops, found = list(schedule.actions), len(problem.ops), 0
    for number, action in enumerate(actions):
        before = actions[number - 1]
        pair = before.do == action.do == "recompute" and before.lane == action.lane
        if pair and action.op == (before.op or 0) + 1 and (action.op or 0) % ops == 1:
            moved = [*actions[: number - 1], action, before, *actions[number + 1 :]]
            found += bool(check_schedule(problem, replace(schedule, actions=tuple(moved))).violations)
            assert found, action.text()
            break


def test_a_byte_too_little_is_found(problem: PipelineProblem) -> None:
    """The schedule of a plan at its own peak passes; with a byte less on the fullest rank it does not."""
    plan = HeuStep(hide="none").solve(problem, Limits()).plan
    assert plan is not None
    made = lower(problem, plan)
    levels = {stage: _peak(problem, made, stage) for stage in range(len(problem.stages))}
    exact = replace(
        problem,
        stages=tuple(replace(own, budget_bytes=levels[stage]) for stage, own in enumerate(problem.stages)),
    )
    assert check_schedule(exact, made).violations == ()
    for stage in levels:
        stages = list(exact.stages)
        stages[stage] = replace(stages[stage], budget_bytes=levels[stage] - 1)
        (first, *_) = check_schedule(replace(exact, stages=tuple(stages)), made).violations
        assert f"bytes in use on rank {stage}" in first


def _peak(problem: PipelineProblem, schedule: Schedule, stage: int) -> int:
    own = problem.stages[stage]
    lane = [action for action in schedule.actions if action.lane == f"{stage}.compute"]
    windows = sum(window.phase == "forward" for window in problem.windows)
    forward = [a.op for a in lane if a.do == "compute" and a.direction == "forward" and a.op is not None]
    level = most = own.static_bytes + (max(forward) // (windows + 1) + 1) * own.layer_static_bytes
    for action in lane:
        level += -action.bytes if action.do == "release" else action.bytes
        most = max(most, level)
    return most


def test_a_schedule_of_fewer_layers_is_refused(problem: PipelineProblem, schedule: Schedule) -> None:
    more = replace(problem, layers=problem.layers + 1)
    assert any("layers, but the problem has" in one for one in check_schedule(more, schedule).violations)
