"""A schedule from the first step on: what a program asks for that is planned before it has optimizer states."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from experiments.fit.trace import FirstStep, Trace
from solvers.ir.fields import TensorId
from solvers.ir.schedule import Schedule
from solvers.timeline.segments import Event, Requests, held_before, repeated, under_schedule

REPEATED = 3
"""How often a step is replayed whose first steps cannot be planned, or are not known."""


def planned_events(trace: Trace, schedule: Schedule) -> list[Event]:
    """Everything from an empty device to the end of the last step, each step under the schedule.

    Where the first steps are not known, or differ from the profiled one before the schedule's last action, the profiled
    step comes several times, on what it finds, laid side by side (`starts_planned`).
    """
    if not starts_planned(trace, schedule):
        return repeated(under_schedule(trace.step, schedule), REPEATED)
    begin = trace.first_steps[0].begin
    events, name, fresh = list(trace.events[:begin]), dict[int, int](), 1 + max(event.block for event in trace.events)
    for step in (*_first(trace), trace.step):
        walked = under_schedule(step, schedule)
        told = _renamed(step, walked, name, fresh)
        events += told
        fresh = max(fresh, 1 + max((event.block for event in told), default=0))
    return events


def starts_planned(trace: Trace, schedule: Schedule) -> bool:
    """Whether the first steps run the same operators as the profiled one as long as anything moves."""
    moves = [action.op for action in schedule.actions if action.do != "compute" and action.op is not None]
    return bool(trace.first_steps) and all(step.alike > max(moves, default=-1) for step in trace.first_steps)


def _first(trace: Trace) -> Iterator[Requests]:
    """The first steps, with tensors where the profiled step has them: the nth block that an operator takes."""
    place_of = {place: name for name, place in _places(trace).items()}
    ends = [step.begin for step in trace.first_steps[1:]] + [trace.step_begin]
    for step, end in zip(trace.first_steps, ends, strict=True):
        events = trace.events[step.begin : end]
        block_of = {
            place_of[place]: block
            for place, block in _numbered(events, step)
            if place in place_of and (place[0] or 0) < step.alike
        }
        yield Requests(tuple(held_before(trace.events, step.begin)), events, step.ops, block_of, begun=step.begun)


def _places(trace: Trace) -> Mapping[TensorId, tuple[int | None, int]]:
    step = FirstStep(trace.step_begin, trace.ops, trace.begun, len(trace.graph.ops))
    at = {block: place for place, block in _numbered(trace.events[trace.step_begin :], step)}
    return {name: at[block] for name, block in trace.block_of.items() if block in at}


def _numbered(events: Sequence[Event], step: FirstStep) -> Iterator[tuple[tuple[int | None, int], int]]:
    """Blocks that operators take, with the operator and which of its blocks it is."""
    seen = Counter[int | None]()
    for event, op in zip(events, step.ops, strict=True):
        if event.bytes and op is not None:
            yield (op, seen[op]), event.block
            seen[op] += 1


def _renamed(step: Requests, walked: Requests, name: dict[int, int], fresh: int) -> list[Event]:
    """The walked events with numbers of their own for blocks that swap-ins took; `name` goes on with what is left."""
    known = {event.block for event in (*step.held, *step.events)}
    offset = fresh - step.fresh()
    events = []
    for event in walked.events:
        block = event.block if event.block in known else event.block + offset
        events.append(event._replace(block=name.get(block, block)))
    plain = {event.block for event in held_before([*step.held, *step.events], len(step.held) + len(step.events))}
    left = held_before([*walked.held, *walked.events], len(walked.held) + len(walked.events))
    gone = sorted(plain - {event.block for event in left})
    new = [event for event in left if event.block not in known]
    sizes = {event.block: event.bytes for event in (*step.held, *step.events) if event.bytes}
    for event in new:
        old = next((one for one in gone if sizes[one] == event.bytes), None)
        if old is not None:
            gone.remove(old)
            name[old] = event.block + offset
    return events
