"""What a walk has measured of a step: its blocks as layers, the device's memory, what its allocator was asked."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from runtime.device.native import core
from runtime.device.trace import RequestTrace
from runtime.recompute.calls import Call, most_made
from runtime.recompute.course import Event, Happened, TapeShape
from runtime.recompute.filling import Reading
from runtime.recompute.footprint import CallFacts, Footprint
from runtime.recompute.launches import BlockLaunches, PartsOfCalls, read_launches
from runtime.recompute.layer import Layer, node_waits, units_of
from runtime.recompute.outside import Uses, uses_of
from runtime.recompute.parts import parts_us, ran_in_parts
from runtime.recompute.passes import passes_at_once
from runtime.recompute.policy import ON_DEMAND
from runtime.recompute.requested import Pass


@dataclass(frozen=True, eq=False)
class Measurement:
    """A measured step: the blocks' `calls`, of `told` in all, and its `windows`, which waits have opened.

    `memory` is the log of what happened on the device, and `asked` what its allocator was asked for: None on a CPU, or
    where the walk did not look at it (`intervals`).
    """

    calls: Sequence[Call]
    told: int
    windows: core.Windows
    memory: core.MemoryLog | None
    asked: RequestTrace | None

    def layers(self) -> list[Layer]:
        """The blocks as measured in the last complete pass."""
        told = None if self.memory is None else self.memory.launches()  # before anything waits for the step's end
        by_block = {
            call.block: call for call in self.calls if call.tape is not None and call.backward_waits is not None
        }
        calls = [by_block[index] for index in sorted(by_block)]
        uses = Uses() if self.memory is None else self.uses()
        for call in calls:
            call.look_at_kept(lambda name: self.memory is None or uses.stays(name))
        ends = [call.forward_marks[0] for call in calls[1:]] + [call.backward_marks[0] for call in calls[-1:]]
        ran = {} if self.memory is None else ran_in_parts(self.memory.events)
        launches, beside = self._launches(calls[0], told)
        gathering = set[int]() if self.memory is None else gathering_calls(self.memory.events)
        return [
            replace(
                self._layer(call, behind, ran.get(call.number, ()), launches),
                beside=beside,
                gathers=call.number in gathering,
            )
            for call, behind in zip(calls, ends, strict=True)
        ]

    def _launches(self, first: Call, told: Sequence[Reading] | None) -> tuple[PartsOfCalls | None, bool]:
        """What the device told of the pass that began with that call; None where it does not tell.

        And whether it told of other streams that had a part in it.
        """
        if told is None or self.memory is None:
            return None, False
        took_us = self._between_us(first.forward_marks[0], first.backward_marks[1] or 0)
        stalls_us = self._waits(0, len(self.windows.waits))
        events = self.memory.events[: len(told) - 1]  # other threads may have done something since
        return read_launches(events, told, stalls_us, took_us)

    def _layer(self, call: Call, behind: int, ran: Sequence[Sequence[int]], launches: PartsOfCalls | None) -> Layer:
        """`behind`: the mark at which what comes behind the block's forward pass has ended; `ran` as in `parts_us`."""
        assert call.tape is not None and call.backward_waits is not None
        began, ended = call.backward_waits
        waits, ended = self._waits(*call.forward_waits), len(self.windows.waits) if ended is None else ended
        backward, last = self._waits(began, ended), call.backward_marks[1]
        marks = call.backward_marks[0], call.backward_marks[0] if last is None else last
        return Layer(
            units=units_of(call.tape, call.passed_on, waits),
            forward_waits_us=waits,
            backward_waits_us=backward,
            input_bytes=call.input_bytes,
            given=call.kept,
            names=call.names,
            made=most_made(self.calls, call),
            backward_us=self._backward_us(call, sum(backward)),
            backward_parts_us=parts_us(
                marks, self.windows.waits[began:ended], ran, call.tape.again_us, self.windows.at_us
            ),
            forward_us=self._between_us(*call.forward_marks),
            behind_us=self._between_us(call.forward_marks[1], behind),
            launches=None
            if launches is None
            else BlockLaunches.of(launches, call.number, node_waits(call.tape, waits), sum(waits), len(backward) + 1),
        )

    def _between_us(self, first: int, last: int) -> float:
        return max(0.0, self.windows.at_us(last) - self.windows.at_us(first))

    def _backward_us(self, call: Call, stalls_us: float) -> float:
        """What the block's backward pass took, less its stalls and what ran again in it."""
        assert call.tape is not None
        first, last = call.backward_marks
        if last is None:
            return 0.0
        again = sum(took for _, took in call.tape.again_us) / max(1, call.returns)  # the first of as many
        return max(0.0, self.windows.at_us(last) - self.windows.at_us(first) - stalls_us - again)

    def _waits(self, began: int, ended: int) -> tuple[float, ...]:
        pairs = self.windows.waits[began:ended]
        return tuple(self.windows.at_us(last) - self.windows.at_us(first) for first, last in pairs)

    def footprint(self) -> Footprint:
        """What the step so far did to the device's memory; nothing else may have begun its statistics anew."""
        assert self.memory is not None
        return Footprint(self.memory.events, self._facts())

    def requests(self) -> Pass | None:
        """What it asked of the device's allocator, likewise; None where nobody knows."""
        told = None if self.asked is None else self.asked.steps()
        if told is None or self.memory is None:
            return None
        before, steps = told
        counts = [one - before for one in self.memory.requests]
        given = {(call.number, -1 - place): size for call in self.calls for place, size in enumerate(call.own_bytes)}
        return Pass.of(self.memory.events, steps, counts, self.memory.places, given)

    def at_once(self) -> dict[int, float]:
        """By block how many calls such as the one that `layers` tells of there were at once, by their bytes.

        More than one where several forward passes came before a backward pass.
        """
        assert self.memory is not None
        facts, sizes = self._facts(), {call.number: sum(call.own_bytes) for call in self.calls}
        told = [(one.block, sum(one.shape.sizes) + sizes.get(number, 0)) for number, one in enumerate(facts)]
        return passes_at_once(self.memory.events, told)

    def uses(self) -> Uses:
        """What the program did with the blocks' tensors outside of them, likewise."""
        assert self.memory is not None
        return uses_of(self.memory.events, self._facts())

    def _facts(self) -> list[CallFacts]:
        facts = {
            call.number: CallFacts(
                call.block, None if call.before is None else call.before.number, TapeShape.of(call.tape), call.policy
            )
            for call in self.calls
            if call.tape is not None
        }
        unknown = CallFacts(-1, None, TapeShape((), ()), ON_DEMAND)  # a call that failed
        return [facts.get(number, unknown) for number in range(self.told)]


def gathering_calls(events: Sequence[Event]) -> set[int]:
    """The calls in which an operator took memory and made nothing: it gathered what it copied to the host."""
    found, level, most = set[int](), dict[int, int](), dict[int, int]()
    for tape, what, _, most_bytes, now in events:
        most = {one: max(bytes_, most_bytes) for one, bytes_ in most.items()}
        if tape < 0 or what not in (Happened.NODE, Happened.MADE, Happened.END):
            continue
        if what != Happened.MADE and most.get(tape, 0) > level.get(tape, 0):
            found.add(tape)
        most.pop(tape, None)
        if what == Happened.NODE:
            level[tape] = most[tape] = now
    return found
