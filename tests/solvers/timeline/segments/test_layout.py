"""An allocator that begins with what another one held serves what follows as that one does."""

from itertools import groupby

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from solvers.ir.requests import HeldRun
from solvers.timeline.segments import Event, Segments, SegmentSettings, replay
from solvers.timeline.segments.blocks import Block
from solvers.timeline.segments.layout import laid_out

MIB = 1 << 20
SIZES = (512, 300 * 1024, MIB + 512, 3 * MIB, 7 * MIB, 12 * MIB, 33 * MIB)


def first_of(block: Block) -> Block:
    while block.prev is not None:
        block = block.prev
    return block


def runs_of(live: dict[int, Block], expandable: bool) -> tuple[tuple[HeldRun, ...], dict[int, int]]:
    """What holds these blocks, told from outside, and each one's number there.

    The small pool's range and the large one's may overlap in the model of one device: the second is moved.
    """
    found, number = list[HeldRun](), dict[int, int]()
    segments = {id(first_of(block)): first_of(block) for block in live.values()}
    for segment in segments.values():
        chain, block = list[Block](), segment
        while True:
            chain.append(block)
            if block.next is None:
                break
            block = block.next
        for mapped, blocks in groupby(chain, lambda block: block.mapped):
            told = list(blocks)
            if mapped:
                shift = 0 if segment.pool.small or not expandable else 1 << 52
                run = tuple((one.size, one.in_use) for one in told)
                address = told[0].address + shift
                found.append(
                    HeldRun(address=address, stream=0, small=segment.pool.small, expandable=expandable, blocks=run)
                )
                for name, own in live.items():
                    if own in told:
                        number[name] = -1 - own.address - shift
    return tuple(found), number


@pytest.mark.parametrize("expandable", [False, True])
@given(requests=st.lists(st.tuples(st.sampled_from(SIZES), st.integers(0, 5)), min_size=2, max_size=40))
def test_what_follows_is_served_alike(expandable: bool, requests: list[tuple[int, int]]) -> None:
    """Half of the requests before, then the cache goes; the other half on the copy and on the one that was copied.

    But where a range's first pages are gone: no snapshot tells of them, so the copy takes others instead.
    """
    settings = SegmentSettings(expandable=expandable)
    device, live = Segments(settings), dict[int, Block]()
    for number, (size, drop) in enumerate(requests[: len(requests) // 2]):
        live[number] = device.allocate(size)
        if drop == 0:
            device.free(live.pop(min(live)))
    device.release_cached()
    runs, name = runs_of(live, expandable)
    assume(all(first_of(block).mapped for block in live.values()))
    copy, held = laid_out(runs, settings)
    assert copy.statistics.reserved.now == device.statistics.reserved.now
    assert copy.statistics.allocated.now == device.statistics.allocated.now == sum(one.size for one in held.values())
    assert set(held) == set(name.values())
    events = list[Event]()
    for number, (size, drop) in enumerate(requests[len(requests) // 2 :], start=len(requests)):
        events.append(Event(number, size))
        live[number] = device.allocate(size)
        if drop < 2:
            oldest = min(live)
            device.free(live.pop(oldest))
            events.append(Event(name.get(oldest, oldest), 0))
    done = replay(events, settings, runs=runs, moments=True)
    if events:
        assert done.moments[-1].allocated == device.statistics.allocated.now
        assert done.moments[-1].reserved == device.statistics.reserved.now


def test_memory_of_the_other_kind_is_held_and_serves_nothing() -> None:
    run = HeldRun(address=0, stream=0, small=False, expandable=False, blocks=((4 * MIB, True), (16 * MIB, False)))
    assert replay([Event(0, 8 * MIB)], runs=[run]).reserved_peak == 20 * MIB
    assert replay([Event(0, 8 * MIB)], SegmentSettings(expandable=True), runs=[run]).reserved_peak == 40 * MIB


def test_a_whole_free_segment_has_gone() -> None:
    run = HeldRun(address=0, stream=0, small=False, expandable=False, blocks=((20 * MIB, False),))
    assert replay([Event(0, MIB)], runs=[run]).reserved_peak == 2 * MIB
