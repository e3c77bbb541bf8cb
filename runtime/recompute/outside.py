"""What the program does with blocks' tensors outside of the blocks: who reads them, and until when it holds them.

Whoever plans moves has to know it. A storage that is away when the program reads it comes back, planned or not, and
what the program holds takes memory whether a tape stores it or not. Both are the same in every step, so the measured
one tells (`csrc/recompute/memory.h`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from runtime.recompute.course import Happened
from runtime.recompute.footprint import LAST, CallFacts, Event
from runtime.recompute.layer import Layer

Where = tuple[int, int, int]
"""A place of a pass, in its order: (0, block, node) of the forward pass, node -1 before a block's first; (0, blocks, n)
behind the last block, from the n-th operator on; (1, -block, 0) from the gradient of what the block returned to that of
the block before."""
BACKWARD: Where = (1, -(2**31), 0)
"""Before all places of a backward pass."""
AFTER: Where = (2, 0, 0)
"""Behind the pass."""

Name = tuple[int, int, int]
"""A storage: of a result, by block, node and place in `Node.made`; of what a block is given and no block before it was,
the block, -1, and its place among these."""


@dataclass(frozen=True)
class Use:
    """Where a storage is read outside of its block, and where it was gone in a step in which no tape held it."""

    reads: frozenset[Where] = frozenset()
    until: Where = AFTER


@dataclass(frozen=True)
class Told:
    """A stretch of a forward pass between two events: the most bytes in use, and what was gone by then.

    `gone`: since the stretch before; `first`: of the pass.
    """

    where: Where
    bytes: int
    gone: tuple[Name, ...]
    first: bool


@dataclass(frozen=True)
class Uses:
    """Of all storages that blocks make and are given; and the forward passes of the step, stretch by stretch."""

    by_name: Mapping[Name, Use] = field(default_factory=dict)
    forward: Sequence[Told] = ()

    def of_values(self, block: int, values: Iterable[tuple[int, int]]) -> Use:
        """Of some results of a block together: reads between its forward pass and its backward pass."""
        return self._of(block, [(block, node, place) for node, place in values])

    def of_given(self, block: int) -> Use:
        """Of what a block is given, likewise."""
        return self._of(block, [name for name in self.by_name if name[:2] == (block, -1)])

    def _of(self, block: int, names: Iterable[Name]) -> Use:
        uses = [self.by_name.get(name, Use()) for name in names]
        first, last = (0, block + 1, -2), (1, -block, 0)
        reads = frozenset(read for use in uses for read in use.reads if first < read < last)
        return Use(reads, max((use.until for use in uses), default=AFTER))

    def stays(self, name: Name) -> bool:
        """Whether the program still holds it when the backward pass of its block begins."""
        return self.by_name.get(name, Use()).until >= (1, -name[0], 0)


def held_units(uses: Uses, block: int, layer: Layer) -> set[int]:
    """The units of a block of which the program holds something until the block's backward pass begins."""
    return {
        index for index, unit in enumerate(layer.units) if any(uses.stays((block, *value)) for value in unit.values)
    }


class _Clock:
    """Where the program is, event by event: in which pass, by the first of its calls, and at which place of it."""

    def __init__(self, calls: Sequence[CallFacts]) -> None:
        self._calls, self._blocks = calls, 1 + max((call.block for call in calls), default=0)
        self._first: list[int] = []
        for index, call in enumerate(calls):
            self._first.append(index if call.before is None else self._first[call.before])
        self.in_pass, self.where = -1, AFTER

    def of(self, call: int) -> Where:
        """The place in that call's pass; behind it while the program is in another."""
        return self.where if self.in_pass == self._first[call] else AFTER

    def passes(self, tape: int, what: int, index: int) -> None:
        """An event happens."""
        if what == Happened.NODE:
            self._turn(tape, (0, self._calls[tape].block, index))
        elif what == Happened.END:
            behind = self._calls[tape].block + 1
            self._turn(tape, (0, behind, -1 if behind < self._blocks else 0))
        elif what == Happened.MARK and index == LAST:
            self.where = AFTER
        elif what == Happened.MARK:
            call, backward = divmod(index, 2)
            block = self._calls[call].block
            self._turn(call, (1, -block, 0) if backward else (0, block, -1))
        elif what == Happened.ELSE and index == 0 and self.where[:2] == (0, self._blocks):
            self.where = 0, self._blocks, self.where[2] + 1

    def _turn(self, call: int, where: Where) -> None:
        if self._calls[call].block >= 0:  # it did not fail
            self.in_pass, self.where = self._first[call], where


class _Reader:
    """Goes through a measured step's events."""

    def __init__(self, calls: Sequence[CallFacts]) -> None:
        self._calls, self._clock = calls, _Clock(calls)
        self._places = [
            {value: (node, place) for node, shape in enumerate(call.shape.nodes)
             for place, (value, _) in enumerate(shape.results)}
            for call in calls
        ]  # fmt: skip
        self._reads: dict[Name, set[Where]] = {}
        self._until: dict[Name, list[Where]] = {}
        self.told: list[Told] = []
        self._gone: list[Name] = []
        self._told_pass = -1

    def read(self, events: Sequence[Event]) -> None:
        """All of them; each is told with the deaths that were found with it, which happened before it."""
        now, at = 0, 0
        while at < len(events):
            tape, what, index, before, after = events[at]
            at += 1
            if what == Happened.READ:
                if (name := self._name(tape, index)) is not None:
                    self._reads.setdefault(name, set()).add(self._clock.of(tape))
                continue
            died = []
            while at < len(events) and events[at][1] == Happened.DIED:
                died.append((events[at][0], events[at][2]))
                at += 1
            self._stretch(before, died, grew=before > now)
            self._clock.passes(tape, what, index)
            now = after

    def _stretch(self, most_bytes: int, died: Sequence[tuple[int, int]], grew: bool) -> None:
        """Whether what died in it was there at its peak is only known where that was when the stretch began."""
        gone = []
        for tape, index in died:
            if (name := self._name(tape, index)) is None:
                continue
            self._until.setdefault(name, []).append(self._clock.of(tape))
            gone += [] if self._clock.of(tape) == AFTER else [name]
        self._gone += gone if grew else []
        if self._clock.where < BACKWARD:
            first = self._clock.in_pass != self._told_pass
            self.told.append(Told(self._clock.where, most_bytes, tuple(self._gone), first))
            self._told_pass, self._gone = self._clock.in_pass, []
        self._gone += [] if grew else gone

    def _name(self, tape: int, index: int) -> Name | None:
        block = self._calls[tape].block
        if block < 0:
            return None
        if index < 0:
            return block, -1, -1 - index
        place = self._places[tape].get(index)
        return None if place is None else (block, *place)

    def uses(self) -> dict[Name, Use]:
        """What never went was there behind the pass, too."""
        calls = Counter(call.block for call in self._calls)
        return {
            name: Use(
                frozenset(self._reads.get(name, ())),
                max(self._until.get(name, ())) if len(self._until.get(name, ())) >= calls[name[0]] else AFTER,
            )
            for name in self._reads.keys() | self._until.keys()
        }


def uses_of(events: Sequence[Event], calls: Sequence[CallFacts]) -> Uses:
    """Of a measured step; of several passes together."""
    reader = _Reader(calls)
    reader.read(events)
    return Uses(reader.uses(), tuple(reader.told))
