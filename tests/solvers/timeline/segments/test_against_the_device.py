"""The predictor against the simulated device's allocator: two implementations of PyTorch's rules that share no code."""

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from runtime.device import CachingAllocator
from runtime.device.native import why_missing
from solvers.timeline.segments import Event, SegmentSettings, replay
from tests.csrc.sim.caching.sequences import Bench, Free, Malloc, State, Step, run
from tests.csrc.sim.caching.test_sequences import ALLOCATORS, CAPACITIES, SIZES

pytestmark = pytest.mark.skipif(why_missing("runtime._sim") is not None, reason=str(why_missing("runtime._sim")))

REQUESTS: st.SearchStrategy[Step] = st.one_of(
    st.builds(Malloc, SIZES, st.integers(0, 2)),
    st.builds(Malloc, SIZES, st.just(0)),
    st.builds(Free, st.integers(0, 30)),
)


def events_of(steps: list[Step], states: list[State]) -> list[tuple[int, Event]]:
    """The steps as events, with their numbers; frees of what is not in use are none."""
    found, live, taken, ooms = list[tuple[int, Event]](), set[int](), 0, 0
    for number, (step, state) in enumerate(zip(steps, states, strict=True)):
        if isinstance(step, Malloc):
            found.append((number, Event(taken, step.bytes, step.stream)))
            if state.ooms == ooms:
                live.add(taken)
            taken, ooms = taken + 1, state.ooms
        elif isinstance(step, Free) and step.index in live:
            live.discard(step.index)
            found.append((number, Event(step.index, 0)))
    return found


def settings_of(allocator: CachingAllocator, bench: Bench) -> SegmentSettings:
    return SegmentSettings(
        device_bytes=bench.capacity_bytes,
        limit_bytes=bench.limit_bytes,
        expandable=allocator.expandable_segments,
        max_split_bytes=allocator.max_split_size_bytes,
        most_rounding_bytes=allocator.max_non_split_rounding_bytes,
    )


@st.composite
def benches(draw: st.DrawFn) -> Bench:
    allocator = draw(ALLOCATORS)
    capacity = draw(CAPACITIES)
    limit = draw(st.one_of(st.none(), CAPACITIES.map(lambda size: min(size, capacity))))
    return Bench("sim", allocator, capacity, limit)


@settings(max_examples=200, deadline=None, phases=[Phase.generate])
@given(st.lists(REQUESTS, min_size=5, max_size=80), benches())
def test_both_hold_the_same_after_every_request(steps: list[Step], bench: Bench) -> None:
    """Up to the first refusal, where the predictor stops."""
    states = run(steps, bench)
    events = events_of(steps, states)
    told = replay([event for _, event in events], settings_of(bench.allocator, bench), moments=True)
    for (number, _), moment in zip(events, told.moments, strict=False):
        state = states[number]
        assert moment == (state.allocated_bytes, state.reserved_bytes, state.inactive_split_bytes), steps[number]
    refused = next((place for place, (number, _) in enumerate(events) if states[number].ooms), None)
    assert (told.refusal.event if told.refusal else None) == refused
    last = states[events[refused if refused is not None else -1][0]] if events else None
    assert last is None or (told.retries, told.ooms) == (last.retries, last.ooms)
