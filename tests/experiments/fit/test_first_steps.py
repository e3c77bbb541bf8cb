"""Steps from the first one on under a schedule: numbers of blocks, what is left between steps, steps that differ."""

from dataclasses import replace

import pytest

from experiments.fit.first_steps import planned_events, starts_planned
from experiments.fit.recording import record
from experiments.fit.trace import FirstStep, Trace, graph_trace
from experiments.hardware import read_hardware
from experiments.models import GptShape
from solvers.ir import Swap, SwapPlan, SwapProblem
from solvers.ir.schedule import Schedule
from solvers.ir.solution import Limits
from solvers.planner import build_solver, make_problem, solve
from solvers.swap.evaluate import least_budget
from solvers.swap.lower import lower
from solvers.timeline.segments import Event, replay
from tests.experiments.fit.steps import MIB, machine, two_layers
from tests.solvers.timeline.segments.levels import levels


def away(trace: Trace) -> Schedule:
    """a0 leaves after op 1, and returns at op 5."""
    problem = make_problem("swap", trace.graph, machine(), 40 * MIB)
    assert isinstance(problem, SwapProblem)
    return lower(problem, SwapPlan(swaps=(Swap(tensor="a0", swap_in_at=5),)))


def twice(alike: int = 6) -> Trace:
    """The step of two layers, and the same step before it, whose operators are the same up to `alike`."""
    trace = graph_trace(two_layers())
    begin, step = trace.step_begin, trace.events[trace.step_begin :]
    first = tuple(event._replace(block=event.block + 100) for event in step)
    return replace(
        trace,
        events=(*trace.events[:begin], *first, *step),
        step_begin=begin + len(first),
        first_steps=(FirstStep(begin, trace.ops, (), alike),),
    )


def test_each_step_lets_its_own_tensor_leave() -> None:
    """By hand: 40 at op 4 in place of 48, in the first step and in the second."""
    trace = twice()
    events = planned_events(trace, away(trace))
    found = levels(events)
    assert len(events) == 3 + 2 * (12 + 2)
    assert max(found) == 40
    assert found[3:17] == found[17:]
    assert replay(events).refusal is None, "no number twice"


def test_steps_that_differ_before_the_last_transfer_are_not_replayed_as_planned() -> None:
    trace = twice(alike=5)
    assert starts_planned(twice(), away(trace))
    assert not starts_planned(trace, away(trace))
    assert len(planned_events(trace, away(trace))) == 3 + 3 * (12 + 2), "the step itself, three times"


def test_what_outlives_its_step_is_known_by_its_number() -> None:
    """a0 stays until the second step has begun: it is the block that the swap-in took which is freed then."""
    trace = twice()
    kept = [event for event in trace.events if event != Event(103, 0)]
    place = kept.index(Event(3, 8 * MIB))
    kept.insert(place, Event(103, 0))
    ops = tuple(op for op, event in zip(trace.ops, trace.events[3:15], strict=True) if event != Event(103, 0))
    first = FirstStep(3, ops, (), 6)
    trace = replace(trace, events=tuple(kept), first_steps=(first,), step_begin=place, ops=(None, *trace.ops))
    assert replay(planned_events(trace, away(trace))).refusal is None


@pytest.mark.usefixtures("plain_sim")
def test_a_program_s_first_steps_are_parted_where_the_second_begins() -> None:
    """The optimizer makes its states in the first step; until then the operators are those of the others."""
    shape = GptShape(layers=2, width=64, heads=2, context=64, batch=4)
    trace = record(shape, "small", read_hardware("sim-small")).trace
    first, second = trace.first_steps
    assert first.begin < second.begin < trace.step_begin
    assert first.alike < second.alike == len(trace.graph.ops)
    assert second.begin - first.begin == len(first.ops)
    problem = make_problem("swap", trace.graph, read_hardware("sim-small"), 0)
    assert isinstance(problem, SwapProblem)
    problem = make_problem("swap", trace.graph, read_hardware("sim-small"), least_budget(problem))
    schedule = solve(build_solver("greedy-swap", {}), problem, Limits()).schedule
    assert schedule is not None
    assert starts_planned(trace, schedule)
    returns = sum(action.do == "swap_in" for action in schedule.actions)
    assert len(planned_events(trace, schedule)) == len(trace.events) + 3 * 2 * returns
