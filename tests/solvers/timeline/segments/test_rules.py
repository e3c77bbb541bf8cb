"""Each public rule of PyTorch's caching allocator on a sequence that was worked out by hand."""

import pytest

from solvers.ir import InvalidInput
from solvers.timeline.segments import Event, Moment, Refused, Segments, SegmentSettings, least_limit, replay

MIB = 1 << 20
FRAGMENTED = [(0, 5 * MIB), (1, 9 * MIB), (2, 4 * MIB), (3, 9 * MIB), (0, 0), (2, 0), (4, 16 * MIB)]


def held(*sizes: int, settings: SegmentSettings | None = None) -> int:
    """Reserved bytes after these requests, none freed."""
    return replay([Event(number, size) for number, size in enumerate(sizes)], settings).reserved_peak


def moments(*events: tuple[int, int], settings: SegmentSettings | None = None) -> list[Moment]:
    return list(replay([Event(*event) for event in events], settings, moments=True).moments)


@pytest.mark.parametrize(
    ("size", "block", "segment"),
    [
        (1, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 12 * MIB, 12 * MIB),  # what remains is no more than 1 MiB, or 2 MiB − 512 here: it is split
        (33 * MIB, 34 * MIB, 34 * MIB),
    ],
)
def test_a_request_takes_a_block_in_a_segment_of_its_class(size: int, block: int, segment: int) -> None:
    (moment,) = moments((0, size))
    assert moment.reserved == segment
    rest = segment - -(-size // 512) * 512
    split = rest >= 512 if size <= MIB else rest > MIB
    assert moment.allocated == (-(-size // 512) * 512 if split else segment)
    assert moment.inactive_split == segment - moment.allocated
    if not split:
        assert moment.allocated == block


def test_small_requests_share_a_segment_and_large_ones_another() -> None:
    assert held(MIB, MIB) == 2 * MIB
    assert held(MIB, MIB, 512) == 4 * MIB
    assert held(MIB, 2 * MIB) == 22 * MIB  # 20 for the large one, though the small segment has 1 left
    assert held(2 * MIB, 9 * MIB, 9 * MIB) == 20 * MIB
    assert held(2 * MIB, 9 * MIB, 9 * MIB, 2 * MIB) == 40 * MIB


def test_what_is_free_serves_its_own_stream_only() -> None:
    events = [Event(0, 12 * MIB, 0), Event(0, 0), Event(1, 12 * MIB, 7), Event(2, 12 * MIB, 0)]
    assert replay(events).reserved_peak == 24 * MIB


def test_the_smallest_block_that_fits_is_taken_and_of_equals_the_lower() -> None:
    device = Segments()
    blocks = [device.allocate(size * MIB) for size in (30, 14, 14)]
    places = [block.address for block in blocks]
    for block in blocks:
        device.free(block)
    assert device.allocate(13 * MIB + 512).address == places[1]  # 14 fits closer than 30
    assert device.allocate(13 * MIB + 512).address == places[2]
    assert device.allocate(13 * MIB + 512).address == places[0]


def test_a_freed_block_joins_its_free_neighbours() -> None:
    """Three blocks of 5 MiB in one segment of 20; the middle one last: the whole segment is one block again."""
    device = Segments()
    first, second, third = (device.allocate(5 * MIB) for _ in range(3))
    device.free(first)
    device.free(third)  # joins the 5 MiB behind it
    assert device.statistics.inactive_split.now == 15 * MIB
    device.free(second)
    assert device.statistics.inactive_split.now == 0
    assert device.allocate(20 * MIB).address == 0
    assert device.statistics.reserved.now == 20 * MIB


def test_a_split_segment_stays_held_and_does_not_serve_what_is_larger() -> None:
    """Fragmentation: 22 MiB are free in two segments, and 16 MiB find no place."""
    after = moments(*FRAGMENTED)
    assert [moment.reserved // MIB for moment in after] == [20, 20, 20, 40, 40, 40, 56]
    assert [moment.allocated // MIB for moment in after] == [5, 14, 18, 27, 22, 18, 34]
    assert [moment.inactive_split // MIB for moment in after] == [15, 6, 2, 13, 18, 22, 22]


def test_cached_segments_go_back_before_a_request_is_refused() -> None:
    limit = SegmentSettings(device_bytes=40 * MIB)
    done = replay([Event(0, 24 * MIB), Event(0, 0), Event(1, 30 * MIB)], limit)
    assert (done.refusal, done.retries, done.returned, done.ooms) == (None, 1, 1, 0)
    assert done.reserved_peak == 30 * MIB


def test_a_split_segment_cannot_go_back_and_the_request_is_refused() -> None:
    events = [Event(0, 5 * MIB), Event(1, 512), Event(2, 24 * MIB)]
    done = replay(events, SegmentSettings(device_bytes=40 * MIB))
    assert done.refusal is not None
    assert (done.refusal.event, done.refusal.segment_bytes, done.refusal.missing) == (2, 24 * MIB, 6 * MIB)
    assert (done.retries, done.ooms) == (1, 1)
    assert done.allocated_peak == 5 * MIB + 512, "30 MiB would fit in 40, but not in segments"


def test_the_limit_counts_whole_segments_of_all_streams() -> None:
    limit = SegmentSettings(limit_bytes=20 * MIB)
    assert replay([Event(0, 5 * MIB, 1)], limit).refusal is None
    assert replay([Event(0, 512, 1), Event(1, 5 * MIB, 1)], limit).refusal is not None


def test_blocks_above_the_largest_split_stay_whole() -> None:
    split = SegmentSettings(max_split_bytes=32 * MIB)
    device = Segments(split)
    large = device.allocate(64 * MIB)
    device.free(large)
    device.allocate(8 * MIB)
    assert device.statistics.reserved.now == 84 * MIB, "a small request may not break the large block"
    device.allocate(40 * MIB)
    assert device.statistics.reserved.now == 124 * MIB, "nor one that is 20 MiB or more below it"
    assert device.allocate(45 * MIB).size == 64 * MIB
    assert device.statistics.reserved.now == 124 * MIB


def test_above_the_largest_split_only_as_much_goes_back_as_is_needed() -> None:
    device = Segments(SegmentSettings(max_split_bytes=32 * MIB, device_bytes=150 * MIB))
    blocks = [device.allocate(size * MIB) for size in (40, 60, 20)]
    for block in blocks:
        device.free(block)
    device.allocate(36 * MIB)  # the 40 are less than 20 larger
    assert device.statistics.reserved.now == 120 * MIB
    device.allocate(38 * MIB)  # no block is near: the 60 go back
    assert (device.statistics.reserved.now, device.statistics.returned) == (98 * MIB, 1)
    assert device.statistics.retries == 0


def test_where_the_large_blocks_are_too_few_all_that_is_cached_goes_back() -> None:
    """28 MiB go back and would do, but they are less than was asked: another stream's 30 go, too, and it is a retry."""
    device = Segments(SegmentSettings(max_split_bytes=21 * MIB, device_bytes=70 * MIB))
    for block in (device.allocate(28 * MIB), device.allocate(30 * MIB, stream=5)):
        device.free(block)
    device.allocate(29 * MIB)
    assert (device.statistics.reserved.now, device.statistics.retries) == (30 * MIB, 1)


def test_settings_that_pytorch_refuses_are_refused() -> None:
    with pytest.raises(InvalidInput, match="max_split_bytes is 100"):
        SegmentSettings(max_split_bytes=100)
    with pytest.raises(InvalidInput, match="most_rounding_bytes is 1"):
        SegmentSettings(most_rounding_bytes=1)
    with pytest.raises(InvalidInput, match="device_bytes is -1"):
        SegmentSettings(device_bytes=-1)


def test_a_sequence_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(InvalidInput, match="frees block 3"):
        replay([Event(3, 0)])
    with pytest.raises(InvalidInput, match="requests block 3, which is in use"):
        replay([Event(3, 1), Event(3, 1)])


def test_a_refusal_says_what_is_missing() -> None:
    device = Segments(SegmentSettings(device_bytes=10 * MIB))
    with pytest.raises(Refused, match="a segment of 20971520 bytes, and 10485760 bytes are missing"):
        device.allocate(2 * MIB)


def test_the_least_limit_uses_what_can_go_back() -> None:
    """Without a limit 24 and 30 are both held, 54 in all; with 30 the first segment goes back in time."""
    events = [Event(0, 24 * MIB), Event(0, 0), Event(1, 30 * MIB)]
    assert replay(events).reserved_peak == 54 * MIB
    assert least_limit(events) == 30 * MIB


def test_peaks_count_from_where_they_are_asked() -> None:
    events = [Event(0, 30 * MIB), Event(0, 0), Event(1, 4 * MIB)]
    late = replay(events, since=2)
    assert (late.allocated_peak, late.reserved_peak) == (4 * MIB, 30 * MIB)
    assert late.allocated_at == 2


# Expandable segments --------------------------------------------------------------------------------------------------

GROWS = SegmentSettings(expandable=True)


def test_an_expandable_segment_grows_by_pages_of_its_pool() -> None:
    assert held(512, settings=GROWS) == 2 * MIB
    assert held(2 * MIB, settings=GROWS) == 20 * MIB
    assert held(21 * MIB, settings=GROWS) == 40 * MIB
    assert held(15 * MIB, 15 * MIB, 10 * MIB, settings=GROWS) == 40 * MIB, "a tile ends where it ends: nothing is lost"
    assert held(15 * MIB, 15 * MIB, 10 * MIB) == 42 * MIB


def test_an_expandable_segment_mends_fragmentation() -> None:
    """The sequence that fragments fixed segments: freed room at the end grows into what is needed."""
    after = moments(*FRAGMENTED, settings=GROWS)
    assert [moment.reserved // MIB for moment in after] == [20, 20, 20, 40, 40, 40, 60]
    assert moments((0, 30 * MIB), (0, 0), (1, 50 * MIB), settings=GROWS)[-1].reserved == 60 * MIB
    assert {moment.inactive_split for moment in after} == {0}, "PyTorch does not count it for expandable segments"


def test_whole_free_pages_go_back_where_the_device_refuses() -> None:
    device = Segments(SegmentSettings(expandable=True, device_bytes=70 * MIB))
    first, second = device.allocate(20 * MIB), device.allocate(20 * MIB)
    place = second.address
    device.free(first)
    device.allocate(MIB)  # the small pool's own page
    assert device.statistics.reserved.now == 42 * MIB
    third = device.allocate(30 * MIB)  # pages at 0 go back, and two more grow behind the second
    assert third.address == place + 20 * MIB
    assert (device.statistics.retries, device.statistics.returned) == (1, 1)
    assert device.statistics.reserved.now == 62 * MIB
    device.free(third)
    device.free(second)
    assert device.allocate(21 * MIB).address == place, "the pages from there on are free, none is before them"
    with pytest.raises(Refused, match="a segment of 41943040 bytes, and 12582912 bytes are missing"):
        device.allocate(40 * MIB)  # 22 are left behind the 21, in three pages; one more would make 82 MiB of 70


def test_bare_addresses_are_mapped_again_from_the_lowest_on() -> None:
    device = Segments(SegmentSettings(expandable=True, device_bytes=70 * MIB))
    first, _ = device.allocate(20 * MIB), device.allocate(20 * MIB)
    device.free(first)
    device.release_cached()
    assert device.statistics.reserved.now == 20 * MIB
    again = device.allocate(3 * MIB)
    assert (again.address, device.statistics.reserved.now) == (0, 40 * MIB)
