"""How much of a budget a plan must leave unused, so that its blocks find their segments."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from solvers.ir.amounts import show_bytes
from solvers.ir.errors import InfeasibleBudget
from solvers.ir.graph import OpGraph
from solvers.ir.requests import StepRequests
from solvers.ir.schedule import Schedule
from solvers.ir.solution import Solution, Status
from solvers.timeline.segments.settings import SMALL_SEGMENT, SegmentSettings
from solvers.timeline.segments.steps import held_by_steps, least_held

T = TypeVar("T")
FINEST = 1 / 400
"""Share of the budget to which the search is exact, where a longer search would find more room."""
FIRST_STEP = 1 / 100
MOST_BETWEEN = 16
"""How many aims above one that fits are tried in turn."""
SPARE_BYTES = SMALL_SEGMENT
"""What the replay had better not use: a small block that lies elsewhere than was replayed may take another segment."""
TURNS, RISES = 4, 2
"""Tries of a slow planner: from where a quick one found room down, and then up again."""


def largest_fitting(budget_bytes: int, least_bytes: int, attempt: Callable[[int], T | None]) -> tuple[int, T] | None:
    """The largest aim, of those tried from the budget down to `least_bytes`, at which `attempt` gives something.

    Blocks find their segments or not with little regard to how many they are, so that no search is sure to find the
    largest: steps double until one fits, aims between it and the budget are tried from above, and the last step is
    halved. None where not even `least_bytes` fits.
    """
    if budget_bytes < least_bytes:
        return None
    aim, found, step = budget_bytes, attempt(budget_bytes), max(1, int(FIRST_STEP * budget_bytes))
    while found is None and aim > least_bytes:
        aim, step = max(least_bytes, aim - step), 2 * step
        found = attempt(aim)
    if found is None or aim == budget_bytes:
        return None if found is None else (aim, found)
    step = max(int(FIRST_STEP * budget_bytes), -(-(budget_bytes - aim) // MOST_BETWEEN))
    for size in range(budget_bytes - step, aim, -step):
        better = attempt(size)
        if better is not None:
            aim, found = size, better
            break
    missed = min(aim + step, budget_bytes)
    while missed - aim > max(1, int(FINEST * budget_bytes)):
        middle = (aim + missed) // 2
        better = attempt(middle)
        missed, aim, found = (middle, aim, found) if better is None else (missed, middle, better)
    return aim, found


def in_turns(aim_bytes: int, between: tuple[int, int], attempt: Callable[[int], T | None]) -> tuple[int, T] | None:
    """The first of a few tries from an aim down that gives something; `between` are the least aim and the budget."""
    least, budget_bytes = between
    sizes = (aim_bytes - turn * int(FIRST_STEP * budget_bytes) for turn in range(TURNS))
    tries = ((size, attempt(size)) for size in sizes if size >= least)
    return next(((size, found) for size, found in tries if found is not None), None)


def risen(found: tuple[int, T], budget_bytes: int, attempt: Callable[[int], T | None]) -> tuple[int, T]:
    """Something for a larger aim than what was found, of those between it and the budget that a few halvings try."""
    aim, best = found
    missed = budget_bytes
    for _ in range(RISES):
        middle = (aim + missed) // 2
        if middle - aim <= FINEST * budget_bytes:
            break
        better = attempt(middle)
        missed, aim, best = (middle, aim, best) if better is None else (missed, middle, better)
    return aim, best


PlanAt = Callable[[int], Solution[Schedule]]
Held = Callable[[Solution[Schedule]], bool]


def planned_and_held(
    budget_bytes: int, least_bytes: int, held: Held, plan_at: PlanAt, quick_at: PlanAt | None = None
) -> tuple[int, Solution[Schedule]] | None:
    """A plan that is `held`, and the bytes that it was made for, from the budget down to `least_bytes`; None: no plan.

    `quick_at` is a planner that takes milliseconds, which looks for the room before the other one is asked; None:
    `plan_at` does.
    """
    found = largest_fitting(budget_bytes, least_bytes, partial(_made, quick_at or plan_at, held))
    if found is None or quick_at is None:
        return found
    attempt = partial(_made, plan_at, held)
    slow = in_turns(found[0], (least_bytes, budget_bytes), attempt)
    if slow is None:
        return found
    return min(risen(slow, budget_bytes, attempt), slow, found, key=lambda one: one[1].objective or 0)


def plan_in_segments(
    graph: OpGraph, budget_bytes: int, plan_at: PlanAt, quick_at: PlanAt | None = None
) -> Solution[Schedule]:
    """A plan whose step, repeated, an allocator with segments holds within the budget, and serves without a retry.

    Plans are made for less than the budget until a replay of the graph's requests, within the budget less
    `SPARE_BYTES` or, where none passes, within the budget, says so; `quick_at` as in `planned_and_held`. A bound that
    was proved for the whole budget is one of any plan within it. Raises `InfeasibleBudget` as `plan_at` does for the
    whole budget, and where the plan for the least bytes does not fit, with the limit in which that one does.
    """
    first = plan_at(budget_bytes)
    if first.plan is None or not isinstance(graph.requests, StepRequests):
        return first
    quick = quick_at or plan_at
    least = least_planned(quick, budget_bytes)
    for within in (max(0, budget_bytes - SPARE_BYTES), budget_bytes):
        settings = settings_of(graph.requests, within)
        held = partial(_held, graph, settings)
        if held(first):
            return first
        found = planned_and_held(budget_bytes, least, held, plan_at, quick_at)
        if found is not None:
            return _told(found[1], first, budget_bytes - found[0], budget_bytes)
    raise _no_room(graph, quick(least), budget_bytes)


def _held(graph: OpGraph, settings: SegmentSettings, answer: Solution[Schedule]) -> bool:
    """Whether the steps of a plan are held within the settings' limit."""
    return answer.plan is not None and held_by_steps(graph, answer.plan, settings).keeps(settings.limit_bytes or 0)


def _made(plan_at: PlanAt, held: Held, aim: int) -> Solution[Schedule] | None:
    """A plan for so many bytes, if there is one and it is held."""
    try:
        answer = plan_at(aim)
    except InfeasibleBudget:
        return None
    return answer if held(answer) else None


def least_planned(plan_at: PlanAt, budget_bytes: int) -> int:
    """The least bytes of tensors for which there is a plan, as the planner says when asked for none."""
    try:
        plan_at(0)
    except InfeasibleBudget as error:
        return budget_bytes if error.least_budget_bytes is None else error.least_budget_bytes
    return 0


def least_of_segments(graph: OpGraph, plan_at: PlanAt, least_bytes: int) -> int | None:
    """The least limit in which the plan for so many bytes is held; None where there is no plan to tell it of."""
    if not isinstance(graph.requests, StepRequests):
        return None
    try:
        answer = plan_at(least_bytes)
    except InfeasibleBudget:
        return None
    settings = settings_of(graph.requests, least_bytes)
    return None if answer.plan is None else least_held(graph, answer.plan, settings)


def settings_of(told: StepRequests, limit_bytes: int) -> SegmentSettings:
    """The allocator that a step was profiled on, within a limit."""
    return SegmentSettings(
        limit_bytes=limit_bytes,
        expandable=told.expandable,
        max_split_bytes=told.max_split_bytes,
        most_rounding_bytes=told.most_rounding_bytes,
    )


def _told(answer: Solution[Schedule], first: Solution[Schedule], unused: int, budget_bytes: int) -> Solution[Schedule]:
    status = Status.OPTIMAL if first.bound is not None and answer.objective == first.bound else Status.FEASIBLE
    said = f"{show_bytes(unused)} of the budget ({100 * unused / budget_bytes:.1f}%) are left to segments"
    reason = said if answer.reason is None else f"{answer.reason}; {said}"
    return msgspec.structs.replace(answer, bound=first.bound, status=status, reason=reason)


def _no_room(graph: OpGraph, smallest: Solution[Schedule], budget_bytes: int) -> InfeasibleBudget:
    assert smallest.plan is not None and isinstance(graph.requests, StepRequests)
    least = least_held(graph, smallest.plan, settings_of(graph.requests, budget_bytes))
    return InfeasibleBudget(
        f"no plan was found whose blocks find segments within {budget_bytes} bytes: the one with the fewest bytes "
        f"needs {least} bytes of segments, so give that much",
        least,
    )
