"""What the program around the blocks does with the blocks' tensors: where it reads them, and where it lets go of them.

A block's results and arguments are used outside of it, too: a loss may read every block's second result, a U-Net's
decoder reads the encoder's. A joint plan has to know that for two reasons. A storage that was sent to the host must be
back when the program reads it. And what the program holds takes memory, whether the block stores it or not.

Every step does the same, so the first one, which is measured, tells. Its log (`csrc/recompute/memory.h`) is a list of
events: a block begins or ends, one of its operators runs, an operator outside of all blocks reads a tensor, a storage
is gone. `uses_of` goes through that list once, keeps in mind at which place of the step it is (`Where`), and writes
down for each storage (`Name`) where it was read and where it was gone (`Use`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from runtime.recompute.course import LAST, Event, Happened
from runtime.recompute.footprint import CallFacts
from runtime.recompute.launches import MOST_WAITS
from runtime.recompute.layer import Layer

Where = tuple[int, int, int]
"""A place of a pass; places that come later are larger. There are three kinds:

- (0, block, node): in the forward pass, from where the block's node begins to where its next one does; node -1: from
  the end of the block before to this block's first node.
- (0, blocks, n): behind the last block, from the beginning of the n-th operator there to that of the next one; 0:
  before the first.
- (1, -block, 0): in the backward pass, from the gradient of what the block returned to that of the block before.
"""
BACKWARD: Where = (1, -(2**31), 0)
"""Before all places of the backward pass, and behind all of the forward pass."""
AFTER: Where = (2, 0, 0)
"""Behind all places of the pass: in another pass, or after the step."""

Name = tuple[int, int, int]
"""Which storage is meant. A result: (block, the node that made it, its place in `Node.made`). An argument of a block
that no block before it was given: (block, -1, its place among these)."""


@dataclass(frozen=True)
class Use:
    """What the program does with one storage outside of its block.

    `reads`: where operators read it. `until`: at which place it was gone, in a step in which the block itself stored
    nothing; so until then the program held it.
    """

    reads: frozenset[Where] = frozenset()
    until: Where = AFTER


@dataclass(frozen=True)
class Told:
    """What one stretch of a forward pass, from one event of the log to the next, says of the device's memory.

    `where` it lies; the most `bytes` in use during it; `gone`: storages that had gone when the most was in use, and not
    by the stretch before; `first`: whether a pass begins with it.
    """

    where: Where
    bytes: int
    gone: tuple[Name, ...]
    first: bool


@dataclass(frozen=True)
class Uses:
    """What a measured step tells: the use of each storage by name, and its forward passes, stretch by stretch.

    A storage without an entry in `by_name` was neither read outside of its block nor gone within the pass.
    """

    by_name: Mapping[Name, Use] = field(default_factory=dict)
    forward: Sequence[Told] = ()

    def of_values(self, block: int, values: Iterable[tuple[int, int]]) -> Use:
        """The use of some results of a block, each a node and its place in `Node.made`, taken together.

        Reads count from behind the block's forward pass to before its backward pass; gone is what all of them are.
        """
        return self._of(block, [(block, node, place) for node, place in values])

    def of_given(self, block: int) -> Use:
        """The same of all arguments of a block that no block before it was given."""
        return self._of(block, self.given.get(block, ()))

    @cached_property
    def given(self) -> Mapping[int, Sequence[Name]]:
        """By block: the names of all of its arguments that no block before it was given."""
        found: dict[int, list[Name]] = {}
        for name in self.by_name:
            if name[1] == -1:
                found.setdefault(name[0], []).append(name)
        return found

    def _of(self, block: int, names: Iterable[Name]) -> Use:
        uses = [self.by_name.get(name, Use()) for name in names]
        first, last = (0, block + 1, -2), (1, -block, 0)
        reads = frozenset(read for use in uses for read in use.reads if first < read < last)
        return Use(reads, max((use.until for use in uses), default=AFTER))

    def stays(self, name: Name) -> bool:
        """Whether the program still holds it when the backward pass of its block begins."""
        return self.by_name.get(name, Use()).until >= (1, -name[0], 0)


def held_units(uses: Uses, block: int, layer: Layer) -> set[int]:
    """The units of a block (by index) of which the program still holds a result when its backward pass begins."""
    return {
        index for index, unit in enumerate(layer.units) if any(uses.stays((block, *value)) for value in unit.values)
    }


def behind_counts(uses: Uses, layers: Sequence[Layer]) -> tuple[int, ...]:
    """Behind which of the program's operators something may move once the last block has returned; 0: before the first.

    Behind that by which it has done with what blocks made, and behind those for which the host waits, as far as they
    are few and no other rank has to have as many.
    """
    last, told = len(layers), layers[-1].launches
    places = [
        where
        for block, layer in enumerate(layers)
        for use in (uses.of_given(block), *(uses.of_values(block, unit.values) for unit in layer.units))
        for where in (*use.reads, use.until)
        if where[:2] == (0, last)
    ]
    found = {max(places)[2] if places else 0}
    if told is not None and not any(unit.communicates for layer in layers for unit in layer.units):
        found |= {*[count for count, one in enumerate(told.behind) if one.tells_host][:MOST_WAITS]}
    return tuple(sorted(found))


class _Clock:
    """Keeps in mind where the program is: at which place (`where`) of which pass (`in_pass`).

    A step has several passes under accumulation; a pass is named by the number of its first call of a block.
    """

    def __init__(self, calls: Sequence[CallFacts]) -> None:
        self._calls, self._blocks = calls, 1 + max((call.block for call in calls), default=0)
        self._first: list[int] = []
        for index, call in enumerate(calls):
            self._first.append(index if call.before is None else self._first[call.before])
        self.in_pass, self.where = -1, AFTER

    def of(self, call: int) -> Where:
        """Where the program is, as seen from that call's pass: `AFTER` while it is in another one."""
        return self.where if self.in_pass == self._first[call] else AFTER

    def passes(self, tape: int, what: int, index: int) -> None:
        """The program has come to this event of the log: `what` happened, on that `tape`, with its `index`."""
        if what == Happened.NODE:
            self._turn(tape, (0, self._calls[tape].block, index))
        elif what == Happened.END:
            behind = self._calls[tape].block + 1
            self._turn(tape, (0, behind, -1 if behind < self._blocks else 0))
        elif what == Happened.MARK and index <= LAST:
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
    """Goes through a measured step's events, and collects reads, deaths and stretches."""

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
        """All events, in order.

        The log notices that storages have died only at its next event, and notes the deaths behind that one; here they
        are read before it, as they happened before it.
        """
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
        """A stretch has ended: these storages died in it.

        Were they still there when most memory was in use? If memory only fell, that was at its beginning: yes, so they
        count as gone from the next stretch on. If it `grew` in between nobody knows, and they count as gone already.
        """
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
        """By name; what did not go in each pass was held to its end."""
        calls = Counter(call.block for call in self._calls)
        return {
            name: Use(
                frozenset(self._reads.get(name, ())),
                max(self._until.get(name, ())) if len(self._until.get(name, ())) >= calls[name[0]] else AFTER,
            )
            for name in self._reads.keys() | self._until.keys()
        }


def uses_of(events: Sequence[Event], calls: Sequence[CallFacts]) -> Uses:
    """What the events of a measured step tell; several passes of it are taken together."""
    reader = _Reader(calls)
    reader.read(events)
    return Uses(reader.uses(), tuple(reader.told))
