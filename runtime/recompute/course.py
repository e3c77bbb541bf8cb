"""What a block's tape holds, event by event, under any policy: the rules of `csrc/recompute`, without a device.

One file: a course's marks and who changes them are one state.

A value is needed while autograd has it saved or a node that wants its arguments reads it; a node wants them while one
of its values is needed and absent; what nobody needs is let go. The events are those of a measured step.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from runtime.recompute.tape import StorePolicy, Tape

GRAIN_BYTES = 512
"""What allocators of devices round sizes up to."""


class Happened(IntEnum):
    """What an event of a measured step is; as in `csrc/recompute/memory.h`, and the two kinds of served waits."""

    NODE, MADE, RUN, RAN, SAVE, TAKE, TAKEN, UNSAVE, DIED, END, WAIT, MARK, ELSE, READ, RETAIN, RETAINED = range(16)
    IN_FORWARD, IN_BACKWARD = 16, 17


Event = tuple[int, int, int, int, int]
"""Of the device's log: the tape (-1: none), what happened, its index, the most bytes since the event before, now."""
Result = tuple[int, int]
"""Of a tape: the node that made it, and its place in `Node.made`."""
LAST = -1
"""The mark at the end of a backward pass."""


@dataclass(frozen=True)
class NodeShape:
    """An operator of a tape: values that it reads (and whether it writes them), and made (and over which; -1: new)."""

    arguments: tuple[tuple[int, bool], ...]
    results: tuple[tuple[int, int], ...]
    runs_again: bool
    communicates: bool


@dataclass(frozen=True)
class TapeShape:
    """A tape's operators, and the bytes of each of its values as an allocator rounds them."""

    nodes: tuple[NodeShape, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, tape: Tape) -> "TapeShape":
        """What a tape that has ended recorded."""
        nodes = tuple(
            NodeShape(tuple(one.arguments), tuple(one.results), one.why_stored is None, one.communicates)
            for one in tape.nodes
        )
        return cls(nodes, tuple(-(-size // GRAIN_BYTES) * GRAIN_BYTES for size in tape.value_bytes))

    def stored(self, policy: StorePolicy) -> tuple[int, ...]:
        """What stays of each node, as in `StorePolicy`."""
        found = []
        for index, node in enumerate(self.nodes):
            if not node.runs_again:
                found.append(2)
            elif index < len(policy.store):
                found.append(policy.store[index])
            else:
                found.append(2 if policy.others or node.communicates else 0)
        return tuple(found)


ABSENT, FIRST, AGAIN = 0, 1, 2
"""What the tape holds of a value: nothing, the storage of the forward pass, or one of its own."""


@dataclass
class Ran:
    """Operators that ran again: when autograd asked, and in each wait by its phase and number."""

    on_demand: list[int] = field(default_factory=list)
    ahead: list[tuple[Happened, int, list[int]]] = field(default_factory=list)


class Course:
    """A tape on its way through the events of a step.

    `held` counts bytes that are there because of the tape: what it made again, and first storages that the program has
    let go of. `taken` says how much a node takes at most while it runs again, where it was measured; `alone` are values
    whose first storage only the measured step's own tape held on to.
    """

    def __init__(
        self,
        shape: TapeShape,
        policy: StorePolicy,
        windows: Mapping[Happened, Mapping[int, tuple[int, ...]]],
        taken: Mapping[int, int],
        alone: Iterable[int] = (),
    ) -> None:
        values = len(shape.sizes)
        self._shape, self._nodes, self._sizes = shape, shape.nodes, shape.sizes
        self._store, self._windows, self._taken, self._alone = shape.stored(policy), windows, taken, set(alone)
        self._maker = [0] * values
        for index, node in enumerate(shape.nodes):
            for value, _ in node.results:
                self._maker[value] = index
        self._present, self._saved, self._readers = [ABSENT] * values, [0] * values, [0] * values
        self._dead, self._latest, self._ever_saved = [False] * values, [False] * values, [False] * values
        self._wants, self._closed = [False] * len(shape.nodes), [False] * len(shape.nodes)
        self._settled = self._retaining = False
        self._pending: list[int] = []
        self.held = 0
        self.ran = Ran()
        self.let_go: set[int] = set()
        """Values whose first storage the last event let go of."""

    def passes(self, what: Happened, index: int) -> int:
        """An event happens; the most that is held meanwhile."""
        self.let_go.clear()
        most = self.held
        if what is Happened.MADE:
            self._make(index)
        elif what is Happened.SAVE:
            self._save(index)
        elif what is Happened.END:
            self._end()
        elif what is Happened.TAKE:
            most = self._have(index)
        elif what is Happened.UNSAVE:
            self._saved[index] -= 1
            if self._settled and not self._needed(index):
                self._let_go(index)
                self._settle(self._maker[index])
        elif what is Happened.DIED:
            self._die(index)
        elif what is Happened.RETAIN:
            self._retaining = True
        elif what is Happened.RETAINED:
            self._end_retained()
        elif what in (Happened.IN_FORWARD, Happened.IN_BACKWARD):
            most = self._replay(what, index)
        return max(most, self.held)

    # ---- the forward pass
    def _make(self, index: int) -> None:
        node = self._nodes[index]
        for value, over in node.results:
            self._latest[value] = True
            if over < 0:
                continue
            self._latest[over] = False
            kept = not self._nodes[self._maker[over]].runs_again and self._was_read(over, index)
            self._hold(over, AGAIN if kept else ABSENT)
        for value, _ in node.arguments:
            maker = self._maker[value]
            if self._store[maker] >= 2 and (self._store[index] != 2 or not self._nodes[maker].runs_again):
                self._hold_first(value)

    def _was_read(self, value: int, before: int) -> bool:
        between = self._nodes[self._maker[value] : before]
        return any(value == one for node in between for one, _ in node.arguments)

    def _save(self, value: int) -> None:
        self._ever_saved[value] = True
        self._saved[value] += 1
        if self._store[self._maker[value]] in (1, 2):
            self._hold_first(value)
        if self._settled and self._saved[value] == 1 and not self._readers[value]:
            self._settle(self._maker[value])

    def _end(self) -> None:
        for value in self._alone:
            self._die(value)
        for index, node in enumerate(self._nodes):
            if self._store[index] in (1, 3) and node.runs_again:
                self._hold_only_stored(node)
        self._settle_all()

    def _hold_only_stored(self, node: NodeShape) -> None:
        for value, _ in node.results:
            if not self._stays(value):
                self._hold(value, ABSENT)

    def _stays(self, value: int) -> bool:
        """Whether the policy stores it, once it is known what autograd has saved."""
        stored = self._store[self._maker[value]]
        return stored == 2 or (stored > 0 and self._ever_saved[value] == (stored == 1))

    def _die(self, value: int) -> None:
        if not self._dead[value]:
            self._dead[value] = True
            self.held += self._sizes[value] if self._present[value] == FIRST else 0

    # ---- what is held
    def _hold(self, value: int, how: int) -> None:
        was = self._present[value]
        if was == how:
            return
        self._present[value] = how
        counted = (was == AGAIN or (was == FIRST and self._dead[value]), how == AGAIN)
        self.held += self._sizes[value] * (int(counted[1] or (how == FIRST and self._dead[value])) - int(counted[0]))
        if was == FIRST:
            self.let_go.add(value)

    def _hold_first(self, value: int) -> None:
        if self._present[value] == ABSENT and self._latest[value]:
            self._hold(value, FIRST)

    def _needed(self, value: int) -> bool:
        return self._saved[value] > 0 or self._readers[value] > 0

    def _settle(self, *more: int) -> None:
        self._pending.extend(more)
        while self._settled and self._pending:
            self._update(self._pending.pop())

    def _settle_all(self) -> None:
        """Readers before what they read."""
        self._settled = False
        for index in reversed(range(len(self._nodes))):
            self._update(index)
        self._settled = True
        self._settle()

    def _update(self, index: int) -> None:
        if self._closed[index]:
            return
        node, wants, needed = self._nodes[index], False, False
        for value, _ in node.results:
            if not self._needed(value):
                self._let_go(value)
                continue
            needed = True
            wants = wants or self._present[value] == ABSENT
        if wants != self._wants[index]:
            self._wants[index] = wants
            for value, _ in node.arguments:
                before = self._needed(value)
                self._readers[value] += 1 if wants else -1
                if self._settled and before != self._needed(value):
                    if before:
                        self._let_go(value)
                    self._pending.append(self._maker[value])
        self._closed[index] = not needed and not self._retaining

    def _let_go(self, value: int) -> None:
        """Nobody needs it; what is stored for readers stays as long as another backward pass may need it."""
        if not self._retaining or self._store[self._maker[value]] == 1 or not self._stays(value):
            self._hold(value, ABSENT)

    def _end_retained(self) -> None:
        """A backward pass whose graph stays is over here: what ran again for it goes."""
        again: list[bool] = []  # by node, as `can_run_again`
        for index, node in enumerate(self._nodes):
            there = not self._closed[index] and node.runs_again
            for value, _ in node.arguments:
                maker = self._maker[value]
                there = there and not self._closed[maker] and (self._present[value] != ABSENT or again[maker])
            again.append(there)
            if self._store[index] in (0, 3) and there:
                self._hold_only_stored(node)
        self._retaining = False
        self._settle_all()

    def can_run_again(self, wanted: int) -> bool:
        """Whether a node could run now: what it reads is there, or made by nodes that could."""
        left, seen = [wanted], set[int]()
        while left:
            index = left.pop()
            if index in seen:
                continue
            seen.add(index)
            node = self._nodes[index]
            if self._closed[index] or not node.runs_again:
                return False
            for value, _ in node.arguments:
                if self._closed[self._maker[value]]:
                    return False
                if self._present[value] == ABSENT:
                    left.append(self._maker[value])
        return True

    # ---- running again
    def _adopt(self, value: int) -> bool:
        """It is there, or the program still has it."""
        if self._present[value] == ABSENT and self._latest[value] and not self._dead[value]:
            self._hold(value, FIRST)
        return self._present[value] != ABSENT

    def _have(self, wanted: int) -> int:
        most = self.held
        chain = [] if self._adopt(wanted) else [self._maker[wanted]]
        while chain:
            index = chain[-1]
            self._update(index)
            if not any(self._present[one] == ABSENT and self._needed(one) for one, _ in self._nodes[index].results):
                chain.pop()
                continue
            missing = [self._maker[one] for one, _ in self._nodes[index].arguments if not self._adopt(one)]
            if missing:
                chain.extend(missing)
                continue
            chain.pop()
            most = max(most, self._run(index))
            self.ran.on_demand.append(index)
        self._settle(self._maker[wanted])
        return most

    def _run(self, index: int, but: Collection[Result] = ()) -> int:
        """The most that is held while the node runs; the results `but` these are held or not as before."""
        node, before = self._nodes[index], self.held
        copied = 0
        for value, written in node.arguments:
            if not written or self._present[value] == ABSENT:
                continue
            if self._is_kept(value):
                copied += self._sizes[value]
            else:
                self._hold(value, ABSENT)
                self._pending.append(self._maker[value])
        made = sum(self._sizes[value] for value, over in node.results if over < 0)
        most = before + self._taken.get(index, copied + made)
        for place, (value, _) in enumerate(node.results):
            if self._present[value] == ABSENT and self._needed(value) and (index, place) not in but:
                self._hold(value, AGAIN)
        most = max(most, self.held)
        self._settle(index)
        return most

    def _is_kept(self, value: int) -> bool:
        """Whether who writes over it writes a copy, as somebody else needs it."""
        return self._retaining or self._saved[value] > 0 or self._readers[value] > 1 or self._latest[value]

    def _replay(self, phase: Happened, wait: int) -> int:
        most, ran = self.replay(self._windows.get(phase, {}).get(wait, ()))
        self.ran.ahead.append((phase, wait, ran))
        return most

    def replay(self, nodes: Sequence[int], but: Collection[Result] = ()) -> tuple[int, list[int]]:
        """`Tape::replay`: the most that is held meanwhile, and which nodes ran."""
        most, ran = self.held, []
        for index in nodes:
            if not self._wants[index]:
                continue
            node = self._nodes[index]
            there = node.runs_again and all([self._adopt(value) for value, _ in node.arguments])
            results = [one for place, (one, _) in enumerate(node.results) if (index, place) not in but]
            missing = any(self._needed(one) and not self._adopt(one) for one in results)
            if missing and there:
                most = max(most, self._run(index, but))
                ran.append(index)
            self._settle(index)
        return most, ran

    def drop(self, nodes: Sequence[int], but: Collection[Result] = ()) -> None:
        """`Tape::drop`."""
        for index in nodes:
            if not self.can_run_again(index):
                continue
            for place, (value, _) in enumerate(self._nodes[index].results):
                if (index, place) not in but:
                    self._hold(value, ABSENT)
        if self._settled:
            self._settle_all()
