"""What a pass under any policies asks of the device's allocator, block by block, from the requests of a measured one.

As in `footprint.py`, but of blocks instead of bytes: what the program takes and gives back stays where it was; what the
measured tapes ran again goes, and what the policies' have run again comes, each operator with the blocks that it took
when it first ran. A value's first block goes when the program has let go of it and no tape holds it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from runtime.device.trace import Step
from runtime.recompute.course import LAST, Event, Happened
from solvers.timeline.segments import Event as Request
from solvers.timeline.segments.settings import is_small, rounded

MOST_UNLIKE_BYTES = 1 << 20
"""An allocator gives a block that is up to this much larger than what was asked for."""
Place = tuple[int, int, int, int]
"""A storage: its tape, its value (below 0: of what the region is given), its address, and the event that knows it."""
Named = tuple[int, int]
"""A tape, and one of its values or operators."""


@dataclass(frozen=True)
class Pass:
    """The requests of a measured pass, in the intervals before its `events`; blocks are numbered from 0 on.

    `after`: small blocks that the program took behind the pass and gave back before the next one, and what of the pass
    it gave back there. `blocks`: in which block each value of each tape first lay; `nodes`: what running an operator of
    a tape takes and gives back; `found`: the bytes of blocks that were there when the pass began, as far as it gave
    them back or gave them to blocks of the model.
    """

    events: tuple[Event, ...]
    requests: tuple[tuple[Request, ...], ...]
    after: tuple[Request, ...]
    blocks: Mapping[Named, int]
    nodes: Mapping[Named, tuple[Request, ...]]
    found: Mapping[int, int]
    count: int

    @classmethod
    def of(
        cls,
        events: Sequence[Event],
        steps: Sequence[Step],
        counts: Sequence[int],
        places: Sequence[Place],
        given: Mapping[Named, int],
    ) -> "Pass | None":
        """The pass from its first block up to the end of its last backward pass.

        `counts` are how many of `steps` came before each event, `given` the bytes of what regions are given. None where
        the first steps are not known, or where the pass waits for collectives, in which a plan may do things.
        """
        marks = [at for at, (_, what, *_) in enumerate(events) if what == Happened.MARK]
        ends = [at for at in marks if events[at][2] == LAST]
        if not ends or counts[marks[0]] < 0 or any(what == Happened.WAIT for _, what, *_ in events):
            return None
        begin, end = marks[0], ends[-1] + 1
        reader = _Reader(places, given)
        found = [()] + [
            reader.interval(at, steps[first:last])
            for at, (first, last) in enumerate(pairwise(counts[begin:end]), begin + 1)
        ]
        own, last = tuple(events[begin:end]), reader.count
        after = _passing(reader.interval(len(events), steps[counts[end - 1] :]), last, reader.found)
        return cls(own, tuple(found), after, reader.blocks, _nodes(own, found), reader.found, reader.count)

    def paired(self, there: Mapping[int, int]) -> dict[int, int]:
        """Which of the blocks that are `there` are those that it found: each one as large, or a little larger."""
        left, pairs = dict(there), dict[int, int]()
        for block, size in self.found.items():
            alike = [one for one, other in left.items() if 0 <= other - size <= MOST_UNLIKE_BYTES]
            if alike:
                pairs[block] = min(alike, key=lambda one: left[one])
                del left[pairs[block]]
        return pairs


class _Reader:
    """Numbers blocks, and finds those of values."""

    def __init__(self, places: Sequence[Place], given: Mapping[Named, int]) -> None:
        self.count, self.blocks, self.found = 0, dict[Named, int](), dict[int, int]()
        self._given, self._live = given, dict[int, int]()
        self._places: dict[int, list[Place]] = {}
        for place in places:
            self._places.setdefault(place[3], []).append(place)

    def interval(self, event: int, steps: Sequence[Step]) -> tuple[Request, ...]:
        """The requests before that event."""
        requests = []
        for address, size, stream in steps:
            if size > 0:
                requests.append(Request(self._add(address), size, stream))
            else:
                block = self._live[address] if address in self._live else self._find(address, -size)
                requests.append(Request(block, 0))
                del self._live[address]
        for tape, value, address, _ in self._places.get(event, ()):
            if address in self._live:
                self.blocks[tape, value] = self._live[address]
            elif (tape, value) in self._given:
                self.blocks[tape, value] = self._find(address, self._given[tape, value])
        return tuple(requests)

    def _add(self, address: int) -> int:
        self._live[address], self.count = self.count, self.count + 1
        return self.count - 1

    def _find(self, address: int, size: int) -> int:
        """A block that was there before."""
        self.found[self.count] = size
        return self._add(address)


def _nodes(events: Sequence[Event], requests: Sequence[Sequence[Request]]) -> dict[Named, tuple[Request, ...]]:
    """By tape and node what it asked for when it ran in the forward pass."""
    found: dict[Named, tuple[Request, ...]] = {}
    began: dict[int, int] = {}
    for at, (tape, what, index, _, _) in enumerate(events):
        if what == Happened.NODE:
            began[tape] = at
        elif what == Happened.MADE and tape in began:
            inside = [one for asked in requests[began[tape] + 1 : at + 1] for one in asked]
            own = {one.block for one in inside if one.bytes}
            found[tape, index] = tuple(one for one in inside if one.block in own)
    return found


def _passing(requests: Sequence[Request], first: int, found: dict[int, int]) -> tuple[Request, ...]:
    """Small blocks that are taken behind the pass and gone before the next one, and what of the pass goes there.

    What stays (an optimizer's states) is there by then, and what large blocks take there no plan changes. What was
    there before the pass is not its own: blocks from `first` on that nobody took are no longer `found`.
    """
    gone = {one.block for one in requests if not one.bytes}
    gone -= {one.block for one in requests if one.bytes and not is_small(rounded(one.bytes))}
    for block in [one for one in found if one >= first]:
        del found[block]
        gone.discard(block)
    return tuple(one for one in requests if one.block in gone)


@dataclass
class Blocks:
    """Requests as they are made up: who still needs which block, and what each is called now.

    Blocks from `fresh` on are new; `there` are the bytes of those that are in use at first.
    """

    fresh: int
    there: Mapping[int, int]
    requests: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._live = {block: Request(block, size) for block, size in self.there.items()}
        self._now: dict[int, int | None] = {}
        self._holders: dict[int, int] = {}
        self._dead, self._leaving = set[int](), set[int]()

    def take(self, request: Request) -> None:
        """The program takes a block."""
        self.requests.append(request)
        self._live[request.block] = request

    def take_another(self, size: int, stream: int) -> int:
        """A tape does; its number."""
        self.take(Request(self.fresh, size, stream))
        self.fresh += 1
        return self.fresh - 1

    def give(self, block: int) -> None:
        """Nobody needs it any more."""
        if self._live.pop(block, None) is None:
            return
        now = self._now.get(block, block)
        if now is not None:
            self.requests.append(Request(now, 0))

    def die(self, block: int) -> None:
        """The program has done with it."""
        self._dead.add(block)
        if not self._holders.get(block):
            self.give(block)

    def hold(self, block: int, more: int) -> None:
        """So many more of tapes' values hold it."""
        self._holders[block] = self._holders.get(block, 0) + more
        if not self._holders[block] and block in self._dead:
            self.give(block)

    def move(self, does: str, block: int) -> None:
        """What lies in it leaves, is gone, or returns into another block."""
        if block not in self._live:
            return
        away = self._now.get(block, block) is None
        if does == "out" and not away:
            self._leaving.add(block)
        elif does == "release" and block in self._leaving:
            self._leaving.remove(block)
            self.requests.append(Request(self._now.get(block, block) or block, 0))
            self._now[block] = None
        elif does == "in" and away:
            self.requests.append(self._live[block]._replace(block=self.fresh))
            self._now[block], self.fresh = self.fresh, self.fresh + 1
