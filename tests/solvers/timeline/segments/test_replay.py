"""Random programs: against the naive model, event by event; and what must hold of any allocator with these rules."""

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.timeline.segments import Event, SegmentSettings, least_limit, replay
from tests.solvers.timeline.segments.naive import MIB, Naive
from tests.solvers.timeline.segments.naive_expandable import NaiveExpandable

SIZES = st.one_of(
    st.integers(1, 4096),
    st.integers(1, 2 * MIB),
    st.integers(MIB, 12 * MIB),
    st.integers(10 * MIB, 70 * MIB),
    st.sampled_from([512, MIB, MIB + 1, 10 * MIB - 512, 10 * MIB, 20 * MIB, 32 * MIB, 52 * MIB]),
)


@st.composite
def programs(draw: st.DrawFn) -> list[Event]:
    """Requests on two streams and frees in any order."""
    events: list[Event] = []
    live: list[int] = []
    for number in range(draw(st.integers(1, 40))):
        frees: bool = draw(st.booleans())
        if live and frees:
            events.append(Event(live.pop(draw(st.integers(0, len(live) - 1))), 0))
        else:
            live.append(number)
            events.append(Event(number, draw(SIZES), draw(st.sampled_from([0, 0, 0, 5]))))
    return events


@settings(max_examples=150)
@given(
    programs(),
    st.one_of(st.none(), st.integers(20, 200).map(lambda size: size * MIB)),
    st.one_of(st.none(), st.sampled_from([21 * MIB, 32 * MIB, 64 * MIB])),
)
def test_every_moment_is_the_naive_model_s(events: list[Event], limit: int | None, split: int | None) -> None:
    done = replay(events, SegmentSettings(device_bytes=limit, max_split_bytes=split), moments=True)
    naive = Naive(limit=limit, split=split)
    for number, event in enumerate(events):
        if event.bytes == 0:
            naive.free(event.block)
        elif not naive.request(*event):
            assert done.refusal is not None
            assert done.refusal.event == number
            break
        assert done.moments[number] == (naive.allocated, naive.reserved, naive.inactive_split), f"after event {number}"
    else:
        assert done.refusal is None
    assert done.retries == naive.retries


@settings(max_examples=150)
@given(programs(), st.integers(20, 250))
def test_every_moment_of_expandable_segments_is_the_naive_model_s(events: list[Event], device_mib: int) -> None:
    done = replay(events, SegmentSettings(expandable=True, device_bytes=device_mib * MIB), moments=True)
    naive = NaiveExpandable(device_mib * MIB)
    for number, event in enumerate(events):
        if event.bytes == 0:
            naive.free(event.block)
        elif not naive.request(*event):
            assert done.refusal is not None
            assert done.refusal.event == number
            break
        assert done.moments[number] == (naive.allocated, naive.reserved, 0), f"after event {number}"
    else:
        assert done.refusal is None
    assert done.retries == naive.retries


@settings(max_examples=80)
@given(programs(), st.booleans(), st.integers(1, 200))
def test_what_holds_of_any_of_these_allocators(events: list[Event], expandable: bool, limit_mib: int) -> None:
    limit = SegmentSettings(expandable=expandable, device_bytes=limit_mib * MIB)
    done = replay(events, limit, moments=True)
    assert done.reserved_peak <= limit_mib * MIB
    for allocated, reserved, inactive in done.moments:
        assert 0 <= allocated <= reserved
        assert 0 <= inactive <= reserved - allocated
        assert reserved % (2 * MIB) == 0
    free = replay(events, SegmentSettings(expandable=expandable))
    assert free.refusal is None
    if limit_mib * MIB >= free.reserved_peak:
        assert done.refusal is None, "what is held without a limit is enough"
        assert done.reserved_peak == free.reserved_peak


@settings(max_examples=30)
@given(programs(), st.booleans())
def test_the_least_limit_serves_every_request(events: list[Event], expandable: bool) -> None:
    least = least_limit(events, SegmentSettings(expandable=expandable))
    assert replay(events, SegmentSettings(expandable=expandable, device_bytes=least)).refusal is None
    assert least <= max(2 * MIB, replay(events, SegmentSettings(expandable=expandable)).reserved_peak)


@settings(max_examples=40)
@given(programs())
def test_expandable_segments_never_leave_more_than_a_page_of_a_pool_unused_where_nothing_was_freed(
    events: list[Event],
) -> None:
    """Blocks are laid one behind the other: of each pool and stream less than its last page remains."""
    requests = [event for event in events if event.bytes]
    last = replay(requests, SegmentSettings(expandable=True), moments=True).moments[-1]
    assert last.reserved - last.allocated < 2 * (20 + 2) * MIB


def test_a_hundred_thousand_events_take_about_a_second() -> None:
    """A step of many layers, again and again."""
    layer = [(size + 512) * 7 for size in (300, 90_000, 2_000_000, 700_000, 5_000_000, 64)]
    events, number = list[Event](), 0
    while len(events) < 100_000:
        step = [Event(number + place, size) for place, size in enumerate(layer * 32)]
        number += len(step)
        events += [*step, *(Event(one.block, 0) for one in reversed(step))]
    begin = time.process_time()
    done = replay(events)
    took = time.process_time() - begin
    assert done.refusal is None
    assert took < 4, f"{took:.2f} s of this process; on a quiet machine it is less than one"
