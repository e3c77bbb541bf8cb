"""A program's requests and frees, replayed: what the allocator would hold after each, and where it would refuse."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from solvers.ir.errors import InvalidProblem
from solvers.ir.fields import require
from solvers.ir.requests import HeldRun
from solvers.timeline.segments.allocator import Refused, Segments
from solvers.timeline.segments.blocks import Block
from solvers.timeline.segments.layout import laid_out
from solvers.timeline.segments.settings import SMALL_SEGMENT, SegmentSettings


class Event(NamedTuple):
    """A request of `bytes` for block number `block` on a stream, or with 0 bytes the block's free."""

    block: int
    bytes: int
    stream: int = 0


class Moment(NamedTuple):
    """Bytes in use, held from the driver, and free in segments that are split, after an event."""

    allocated: int
    reserved: int
    inactive_split: int


@dataclass(frozen=True)
class Refusal:
    """Which event was refused, and what it asked for; `missing` bytes of a segment of `segment_bytes`."""

    event: int
    bytes: int
    segment_bytes: int
    missing: int


@dataclass(frozen=True)
class Replayed:
    """Peaks in bytes, the counts, and the first refusal (None: every request was served).

    `reserved_at` and `allocated_at` are the events at which the peaks were first reached, None where there was nothing;
    `retried_at` is the last event at which cached memory went back to the driver before it could be served.
    `moments` are there only where they were asked for.
    """

    allocated_peak: int
    reserved_peak: int
    inactive_split_peak: int
    retries: int
    ooms: int
    returned: int
    allocated_at: int | None
    reserved_at: int | None
    refusal: Refusal | None
    retried_at: int | None = None
    moments: tuple[Moment, ...] = ()


def replay(
    events: Iterable[Event],
    settings: SegmentSettings | None = None,
    *,
    runs: Iterable[HeldRun] = (),
    moments: bool = False,
    since: int = 0,
) -> Replayed:
    """Replay events until the end, or up to the first request that is refused.

    The allocator begins with what it holds of `runs` in use (`laid_out`), where given. Peaks count from event number
    `since` on: what is held then counts, what was held before not. Raises `InvalidProblem` on a block that is requested
    twice, or freed without being there.
    """
    device, live = laid_out(runs, settings or SegmentSettings())
    levels, refusal, seen = device.statistics, None, list[Moment]()
    allocated_at = reserved_at = retried_at = None
    allocated_top = reserved_top = 0
    for number, event in enumerate(events):
        if number == since:
            for level in (levels.allocated, levels.reserved, levels.inactive_split):
                level.peak = level.now
            allocated_top = reserved_top = -1
        retries = levels.retries
        try:
            _act(device, live, number, event)
        except Refused as error:
            refusal = Refusal(number, event.bytes, error.segment_bytes, error.missing)
            break
        if levels.retries > retries:
            retried_at = number
        if levels.allocated.peak > allocated_top:
            allocated_top, allocated_at = levels.allocated.peak, number
        if levels.reserved.peak > reserved_top:
            reserved_top, reserved_at = levels.reserved.peak, number
        if moments:
            seen.append(Moment(levels.allocated.now, levels.reserved.now, levels.inactive_split.now))
    return Replayed(
        allocated_peak=levels.allocated.peak,
        reserved_peak=levels.reserved.peak,
        inactive_split_peak=levels.inactive_split.peak,
        retries=levels.retries,
        ooms=levels.ooms,
        returned=levels.returned,
        allocated_at=allocated_at,
        reserved_at=reserved_at,
        refusal=refusal,
        retried_at=retried_at,
        moments=tuple(seen),
    )


def _act(device: Segments, live: dict[int, Block], number: int, event: Event) -> None:
    block, size, stream = event
    if size > 0:
        require(block not in live, f"events[{number}] requests block {block}, which is in use: give it another number")
        live[block] = device.allocate(size, stream)
        return
    held = live.pop(block, None)
    if held is None:
        raise InvalidProblem(f"events[{number}] frees block {block}, which is not in use: request it before")
    device.free(held)


def least_limit(events: Sequence[Event], settings: SegmentSettings | None = None, granule: int = SMALL_SEGMENT) -> int:
    """The least memory in which every request is served, to `granule` bytes; found by halving, each try a replay.

    Cached segments go back before a request is refused, so this may be less than what the allocator would hold without
    a limit; and a little more memory can refuse what less served, since blocks then lie elsewhere. What is returned was
    replayed and held; the tries are between the bytes in use at the peak and the peak held without a limit.
    """
    settings = settings or SegmentSettings()
    free = replay(events, replace(settings, device_bytes=None, limit_bytes=None))
    low, high = free.allocated_peak // granule, -(-free.reserved_peak // granule)
    while low < high:
        middle = (low + high) // 2
        held = replay(events, replace(settings, device_bytes=middle * granule, limit_bytes=None))
        low, high = (low, middle) if held.refusal is None else (middle + 1, high)
    return high * granule
