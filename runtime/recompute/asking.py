"""A pass under policies as requests to the allocator: tapes that take and give back blocks, and moves between them."""

import math
from collections.abc import Collection, Mapping, Sequence

from runtime.recompute.course import ABSENT, AGAIN, FIRST, Course, Happened, Result, TapeShape
from runtime.recompute.footprint import CallFacts
from runtime.recompute.moves import Move
from runtime.recompute.policy import BlockPolicy
from runtime.recompute.requested import Blocks, Pass
from runtime.recompute.work import Deed
from solvers.timeline.segments import Event as Request


class _Asking(Course):
    """A tape's course that says which blocks it takes and gives back."""

    def __init__(
        self, blocks: Blocks, measured: Pass, tape: int, shape: TapeShape, policy: BlockPolicy, alone: Sequence[int]
    ) -> None:
        super().__init__(shape, policy.store, {}, {}, alone)
        self._blocks, self._pass, self._tape = blocks, measured, tape
        self._own: dict[int, int] = {}
        self._made: dict[int, int] = {}

    def block_of(self, node: int, place: int) -> int | None:
        """Where what a node made lies: in the tape's own block, or still in its first one."""
        results = self._nodes[node].results if node < len(self._nodes) else ()
        if place >= len(results):
            return None
        value = results[place][0]
        return self._own.get(value, self._first(value))

    def _first(self, value: int) -> int | None:
        return self._pass.blocks.get((self._tape, value))

    def _hold(self, value: int, how: int) -> None:
        was = self._present[value]
        super()._hold(value, how)
        if was == how:
            return
        first = self._first(value)
        if how == FIRST and first is not None:
            self._blocks.hold(first, 1)
        elif how == AGAIN and value in self._made:
            self._own[value] = self._made.pop(value)
        if was == FIRST and first is not None:
            self._blocks.hold(first, -1)
        elif was == AGAIN and value in self._own:
            self._blocks.give(self._own.pop(value))

    def _die(self, value: int) -> None:
        super()._die(value)
        first = self._first(value)
        if first is not None:
            self._blocks.die(first)

    def _run(self, index: int, but: Collection[Result] = ()) -> int:
        self._made = self._taken_again(index)
        most = super()._run(index, but)
        for block in self._made.values():
            self._blocks.give(block)
        self._made = {}
        return most

    def _taken_again(self, index: int) -> dict[int, int]:
        """Take what the operator takes when it runs: the block of each value that it makes."""
        node, called = self._nodes[index], dict[int, int]()
        template = self._pass.nodes.get((self._tape, index), ())
        made = self._written_over(index, next((one.stream for one in template), 0))
        for block, size, stream in template:
            if size:
                called[block] = self._blocks.take_another(size, stream)
            else:
                self._blocks.give(called.pop(block))
        for value, old in node.results:
            first = self._first(value)
            if old < 0 and first in called:
                made[value] = called.pop(first)
        for block in called.values():
            self._blocks.give(block)
        return made

    def _written_over(self, index: int, stream: int) -> dict[int, int]:
        """By value that is written over another one: that one's own block, or a copy where somebody still needs it."""
        node, made = self._nodes[index], dict[int, int]()
        over = {old: value for value, old in node.results if old >= 0}
        for value, written in node.arguments:
            if not written or self._present[value] == ABSENT or value not in over:
                continue
            if self._is_kept(value):
                made[over[value]] = self._blocks.take_another(self._sizes[value], stream)
            elif value in self._own:
                made[over[value]] = self._own.pop(value)
        return made

    # ---- what plans of the whole step do
    def do(self, deed: Deed) -> None:
        """Run nodes again, or let go of what they made, as `Tape::replay` and `Tape::drop` do."""
        if deed.does == "replay":
            self.replay(deed.nodes, deed.but)
        else:
            self.drop(deed.nodes, deed.but)


class PlannedPass:
    """What a measured pass, and the program behind it, ask for under policies, one for each block.

    `alone` as in `Footprint`; `there` are the bytes of blocks that are in use at first and may be gone in the end, by
    their numbers, which are below 0. What tapes take is numbered from `measured.count` on.
    """

    def __init__(
        self,
        measured: Pass,
        calls: Sequence[CallFacts],
        policies: Sequence[BlockPolicy],
        alone: Sequence[Sequence[int]],
        there: Mapping[int, int],
    ) -> None:
        self._pass, self._calls, self._blocks = measured, calls, Blocks(measured.count, there)
        self._found, self._skipped = measured.paired(there), set[int]()
        self._does = [call.policy if call.block < 0 else policies[call.block] for call in calls]
        self._tapes = [
            _Asking(self._blocks, measured, tape, call.shape, policy, alone[tape])
            for tape, (call, policy) in enumerate(zip(calls, self._does, strict=True))
        ]
        # After so many operators these moves stand behind this call.
        self._behind: list[tuple[int, int, tuple[Move, ...]]] = []
        self._begun = 0
        self._again = False  # what the measured step ran again is under way

    def requests(self) -> list[Request]:
        """All of them, in order."""
        for (tape, what, index, _, _), asked in zip(self._pass.events, self._pass.requests, strict=True):
            for request in asked:
                self._ask(request)
            if what in (Happened.TAKE, Happened.TAKEN):
                self._again = what == Happened.TAKE
            if what == Happened.READ or (what == Happened.DIED and index < 0):
                continue
            if tape >= 0:
                self._pass_by(tape, Happened(what), index)
            elif what == Happened.MARK and index >= 0:
                (self._begin_backward if index % 2 else self._begin_forward)(index // 2)
            elif what == Happened.ELSE and index == 0 and self._behind:
                self._begun += 1
                self._end_behind(self._begun - 1)
        for request in self._pass.after:
            self._ask(request)
        return self._blocks.requests

    def _ask(self, request: Request) -> None:
        if not request.bytes:
            if request.block not in self._skipped:
                self._blocks.die(self._found.get(request.block, request.block))
        elif self._again:
            self._skipped.add(request.block)
        else:
            self._blocks.take(request)

    def _pass_by(self, tape: int, what: Happened, index: int) -> None:
        if not self._calls[tape].shape.nodes:
            return
        if what == Happened.NODE:
            self._move(tape, index)
        self._tapes[tape].passes(what, index)
        work = self._does[tape].work
        if what == Happened.END and work is not None:
            self._move(tape, len(self._calls[tape].shape.nodes))
            if work.behind:
                self._behind, self._begun = [(count, tape, moves) for count, moves in work.behind], 0

    def _begin_forward(self, call: int) -> None:
        self._move(call, -1)

    def _move(self, call: int, node: int) -> None:
        work = self._does[call].work
        for move in () if work is None else work.forward.get(node, ()):
            self._carry_out(call, move)

    def _end_behind(self, begun: float = math.inf) -> None:
        """What is moved once so many operators have begun."""
        due = [one for one in self._behind if one[0] <= begun]
        self._behind = self._behind[len(due) :]
        for _, call, moves in due:
            for move in moves:
                self._carry_out(call, move)

    def _begin_backward(self, call: int) -> None:
        self._end_behind()
        work = self._does[call].work
        for deed in () if work is None else work.before:
            if isinstance(deed, Move):
                self._carry_out(call, deed)
                continue
            tape = self._of(call, deed.block)
            if tape is not None:
                self._tapes[tape].do(deed)
        if work is not None:
            self._behind, self._begun = [(count, call, moves) for count, moves in work.within], 0

    def _carry_out(self, call: int, move: Move) -> None:
        tape = self._of(call, move.block)
        if tape is None:
            return
        if move.given:
            blocks = [self._pass.blocks.get((tape, -1 - place)) for place in move.given]
        else:
            blocks = [self._tapes[tape].block_of(*value) for value in move.values]
        for block in blocks:
            if block is not None:
                self._blocks.move(move.does, self._found.get(block, block))

    def _of(self, call: int, block: int) -> int | None:
        """The call of that block in the same pass, among those so far."""
        at: int | None = call
        while at is not None and self._calls[at].block != block:
            at = self._calls[at].before
        return at
