"""A trace against a budget: peaks, the least memory that serves it, and where the peak is and what holds it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from experiments.fit.answer import MODELLED, Row, Technique, Where
from experiments.fit.trace import Kind, Trace, bytes_by_kind
from solvers.ir.amounts import show_bytes
from solvers.ir.hardware import Hardware
from solvers.ir.solution import Limits
from solvers.timeline.segments import Event, Replayed, SegmentSettings, held_before, least_limit, replay

BY_CHANCE = "fits by chance: with somewhat more memory blocks would lie elsewhere and one be refused"


@dataclass(frozen=True)
class Budget:
    """The bytes that the allocator may hold, and whether it grows its segments."""

    bytes: int
    expandable: bool = False

    @property
    def settings(self) -> SegmentSettings:
        """The allocator within it."""
        return SegmentSettings(device_bytes=self.bytes, limit_bytes=self.bytes, expandable=self.expandable)

    @property
    def endless(self) -> SegmentSettings:
        """The same allocator on a device without end."""
        return SegmentSettings(expandable=self.expandable)


@dataclass(frozen=True)
class Asked:
    """What every technique is asked with: the machine, the techniques, and who plans swaps within which limits."""

    hardware: Hardware
    techniques: Sequence[Technique]
    solver: str
    limits: Limits


@dataclass(frozen=True)
class Told:
    """What a row says beside bytes."""

    technique: Technique
    what: str
    how: str
    step_how: str
    remarks: tuple[str, ...] = ()


def row_of(trace: Trace, budget: Budget, told: Told) -> Row:
    """The row of a technique whose requests are the trace's, whatever the budget."""
    free, within = replay(trace.events, budget.endless, moments=True), replay(trace.events, budget.settings)
    allocated = allocated_peak(trace.events)
    least = least_limit(trace.events, budget.endless)
    remarks = list(told.remarks)
    if within.refusal is not None:
        asked = show_bytes(within.refusal.bytes)
        remarks.append(f"refused: a request of {asked} in {_place(trace, within.refusal.event)}")
        remarks += fragmented(allocated, least, budget)
    elif budget.bytes < least:
        remarks.append(BY_CHANCE)
    return Row(
        technique=told.technique,
        what=told.what,
        how=f"{told.how}; reserved {MODELLED}",
        fits=within.refusal is None,
        fits_allocated=allocated <= budget.bytes,
        allocated_bytes=allocated,
        reserved_bytes=free.reserved_peak,
        segments=segments_of(free),
        least_allocated_bytes=allocated,
        least_reserved_bytes=least,
        margin_allocated_bytes=budget.bytes - allocated,
        margin_reserved_bytes=budget.bytes - least,
        retries=within.retries,
        host_bytes=0,
        host_rounded_bytes=0,
        least_host_bytes=0,
        step_us=sum(op.time_us for op in trace.graph.ops),
        step_how=told.step_how,
        peak=where_of(trace),
        remarks=(*remarks, *_earlier(trace, allocated)),
    )


def segments_of(free: Replayed) -> tuple[tuple[int, int], ...]:
    """Sizes of the segments that the driver gave, the largest first, with how many; of a replay that gave none back."""
    levels = (0, *(moment.reserved for moment in free.moments))
    grown = Counter(now - before for before, now in pairwise(levels) if now > before)
    return tuple(sorted(grown.items(), reverse=True))


def fragmented(needed_bytes: int, least_reserved_bytes: int, budget: Budget) -> tuple[str, ...]:
    """Why a step whose bytes fit is refused all the same; nothing where not even its bytes do."""
    if needed_bytes > budget.bytes:
        return ()
    if budget.expandable:
        why = "expandable segments grow by 20 MiB (for requests up to 1 MiB, by 2 MiB)"
    else:
        why = "a request of 1 to 10 MiB takes a segment of 20 MiB, a smaller one of 2 MiB, each to be filled by others"
    need = f"{show_bytes(needed_bytes)} of blocks would fit, their segments do not: {why}"
    return (f"{need}; give at least {show_bytes(least_reserved_bytes)}",)


def where_of(trace: Trace, step: Sequence[Event] | None = None, ops: Sequence[int | None] | None = None) -> Where:
    """Where most bytes are in use during the step (or another one that begins with the same blocks)."""
    step = trace.events[trace.step_begin :] if step is None else step
    ops = trace.ops if ops is None else ops
    before = held_before(trace.events, trace.step_begin)
    place, size = _peak([*before, *step], len(before))
    held = held_before([*before, *step], place + 1)
    found = bytes_by_kind(held, _kinds(trace, step))
    number = ops[place - len(before)] if ops else None
    op = None if number is None else trace.graph.ops[number]
    return Where(
        operator="between operators" if op is None else op.name,
        number=number,
        phase="" if op is None else op.phase,
        bytes=size,
        bytes_by_kind=found,
    )


def _kinds(trace: Trace, step: Sequence[Event]) -> dict[int, Kind]:
    """Kinds of all blocks; what the step takes and never shows as a tensor is temporary."""
    workspaces = dict.fromkeys((event.block for event in step if event.bytes), "temporaries")
    return {**workspaces, **trace.kinds}  # type: ignore[dict-item]


def allocated_peak(events: Sequence[Event]) -> int:
    """The most bytes in use if blocks were exactly as large as asked, rounded up to 512."""
    return _peak(events, 0)[1]


def _peak(events: Sequence[Event], begin: int) -> tuple[int, int]:
    """The event from number `begin` on after which most bytes are in use, and how many; blocks rounded up to 512."""
    sizes: dict[int, int] = {}
    level, place, most = 0, max(0, begin - 1), 0
    for number, event in enumerate(events):
        if event.bytes:
            sizes[event.block] = -(-event.bytes // 512) * 512
            level += sizes[event.block]
        else:
            level -= sizes.pop(event.block)
        if number >= begin - 1 and level > most:
            place, most = number, level
    return place, most


def _place(trace: Trace, event: int) -> str:
    """Where in the program an event is."""
    if event < trace.step_begin:
        return "the first steps"
    number = trace.ops[event - trace.step_begin]
    return "the step, between operators" if number is None else f"{trace.graph.ops[number].name} (operator {number})"


def _earlier(trace: Trace, allocated: int) -> tuple[str, ...]:
    """A word on a peak that lies before the profiled step."""
    most = where_of(trace).bytes
    if allocated <= most:
        return ()
    return (f"the steps before need {show_bytes(allocated - most)} more than the profiled one",)
