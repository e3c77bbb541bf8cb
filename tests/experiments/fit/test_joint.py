"""Keeping, swapping and recomputing together: the requests of a step under a plan, by hand and at random."""

import math

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.fit.joint import FIRST, JointSearch, joint_problem_of, joint_row
from experiments.fit.joint_requests import under_joint
from experiments.fit.judge import Budget, allocated_peak
from experiments.fit.trace import Trace, graph_trace
from solvers.ir import Limits
from solvers.joint.draft import Away, Draft, plan_of
from solvers.joint.given import given_of, least_budget_bytes
from solvers.joint.lower import lower
from solvers.timeline import simulate
from solvers.timeline.segments import Requests, repeated, replay
from tests.experiments.fit.steps import MIB, machine, two_layers
from tests.solvers.joint.drafts import random_draft

QUICK = Limits(time_s=math.inf, work=0.001)


def walked(
    trace: Trace, budget_mib: int, again: tuple[tuple[int, int], ...] = (), away: tuple[Away, ...] = ()
) -> Requests:
    """Under the plan with ops that run again, each with its stage, and ops that leave."""
    problem = joint_problem_of(trace, machine(), budget_mib * MIB)
    stages = [{op for stage, op in again if stage == number} for number in range(len(problem.ops))]
    return under_joint(trace, lower(problem, plan_of(given_of(problem), Draft(stages, away))))


def balanced(step: Requests) -> bool:
    """Every block is taken once and given back at most once, after that."""
    live, seen = {event.block for event in step.held}, {event.block for event in step.held}
    for event in step.events:
        if event.bytes and event.block in seen:
            return False
        if not event.bytes and event.block not in live:
            return False
        (live.add if event.bytes else live.discard)(event.block)
        seen.add(event.block)
    return True


def test_a_plan_that_keeps_everything_asks_for_what_the_step_asks() -> None:
    trace = graph_trace(two_layers())
    step = walked(trace, 48)
    told = [(event.bytes, op) for event, op in zip(step.events, step.ops, strict=True)]
    assert told == [(event.bytes, op) for event, op in zip(trace.events[trace.step_begin :], trace.ops, strict=True)]
    assert allocated_peak(repeated(step, 3)) == allocated_peak(trace.events) == 48 * MIB


def test_what_runs_again_and_what_returns_take_other_blocks() -> None:
    """a0 (8) is computed again at op 5, or away in ops 2 to 4: 40 at op 4, in place of 48."""
    trace = graph_trace(two_layers())
    again = walked(trace, 40, again=((5, 0),))
    assert balanced(again) and len(again.events) == len(trace.ops) + 2
    assert allocated_peak(repeated(again, 3)) == 40 * MIB
    away = walked(trace, 40, away=(Away(0, 1, 5),))
    assert balanced(away) and len(away.events) == len(trace.ops) + 2
    assert allocated_peak(repeated(away, 3)) == 40 * MIB


@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=60, deadline=None)
def test_random_plans_take_no_more_than_the_simulation_says(seed: int, expandable: bool) -> None:
    """In a step whose tensors are its ops' outputs; every repetition takes the same."""
    trace = graph_trace(two_layers())
    problem = joint_problem_of(trace, machine(), 64 * MIB)
    numbers, draft = random_draft(problem, seed)
    schedule = lower(problem, plan_of(numbers, draft))
    step = under_joint(trace, schedule)
    assert balanced(step)
    assert allocated_peak(repeated(step, 1)) <= simulate(problem, schedule).peak_bytes
    free = Budget(1, expandable).endless
    assert replay(repeated(step, 2), free).reserved_peak <= replay(repeated(step, 3), free).reserved_peak


def test_rows_say_what_segments_need_and_a_plan_fits_in_that_much() -> None:
    trace = graph_trace(two_layers())
    search = JointSearch(trace, joint_problem_of(trace, machine(), 40 * MIB), Budget(40 * MIB), QUICK)
    least = least_budget_bytes(search.problem)
    row = joint_row(trace, machine(), Budget(least), "by hand", "greedy-swap", QUICK)
    assert row.fits_allocated and row.least_reserved_bytes is not None and row.least_reserved_bytes >= least
    enough = joint_row(trace, machine(), Budget(row.least_reserved_bytes), "by hand", "joint", QUICK)
    assert enough.fits and enough.asked == (FIRST, "joint") and enough.peak is not None
    assert enough.reserved_bytes is not None and enough.reserved_bytes <= row.least_reserved_bytes
    too_little = joint_row(trace, machine(), Budget(least - 1), "by hand", "joint", QUICK)
    assert (too_little.fits, too_little.fits_allocated, too_little.asked) == (False, False, ())


def test_a_machine_without_a_link_says_so() -> None:
    lonely = msgspec.structs.replace(machine(), links=())
    row = joint_row(graph_trace(two_layers()), lonely, Budget(40 * MIB), "by hand", "joint", QUICK)
    assert row.fits is None and row.reason is not None and "cannot be planned here" in row.reason
