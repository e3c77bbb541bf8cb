"""What a step asks of the allocator under a joint plan: outputs that leave, return, or are computed again."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from experiments.fit.trace import Trace
from solvers.ir.fields import TensorId
from solvers.ir.schedule import Schedule
from solvers.recompute.graph.make import pieces_of
from solvers.timeline.segments import Event, Requests

AGAIN = ("recompute", "swap_in")
"""What takes an output's blocks once more."""


def under_joint(trace: Trace, schedule: Schedule) -> Requests:
    """The step under the schedule of a joint plan of its graph.

    An output gives its blocks back where the schedule says so; for the last time not before the step itself did, as the
    program may hold it. It takes others right before it returns, or where its operator runs again, with what that takes
    and gives back meanwhile. A tensor that is written in place has a block for each content that the problem knows.
    """
    return _Walk(trace, schedule).planned()


class _Walk:
    """One pass over the schedule's actions; `live[k][x]` is the block of tensor x that problem op k has made."""

    def __init__(self, trace: Trace, schedule: Schedule) -> None:
        self.step, self.schedule, self.pieces = trace.step, schedule, pieces_of(trace.graph)
        sizes = {event.block: event for event in self.step.events if event.bytes}
        managed = {name for piece in self.pieces for name in piece.tensors}
        self.request = {name: sizes[block] for name, block in self.step.block_of.items() if block in sizes}
        self.tensor_in = {event.block: name for name, event in self.request.items() if name in managed}
        makers: dict[TensorId, list[int]] = {}
        for number, piece in enumerate(self.pieces):
            for name in piece.tensors:
                makers.setdefault(name, []).append(number)
        self.makers = {name: sorted(found, key=lambda one: self.pieces[one].ops) for name, found in makers.items()}
        self.again = {action.op: at for at, action in enumerate(schedule.actions) if action.do in AGAIN}
        self.live: dict[int, dict[TensorId, int]] = {number: {} for number in range(len(self.pieces))}
        self.done, self.gone = set[int](), set[TensorId]()
        self.next, self.reached, self.at = self.step.fresh(), 0, 0
        self.events: list[Event] = []
        self.ops: list[int | None] = []
        self.own = self._own()

    def planned(self) -> Requests:
        """The step's requests, in the order of the schedule's list."""
        for at, action in enumerate(self.schedule.actions):
            assert action.op is not None
            if action.do in ("compute", "collective_start"):
                self._run(action.op)
            elif action.do == "recompute":
                self._again(action.op)
            elif action.do == "swap_in":
                self._take(action.op, self.pieces[action.op].tensors)
            elif action.do == "release":
                self._release(action.op, last=self.again.get(action.op, -1) < at)
        self._pass_until(len(self.step.begun) + len(self.step.events) + self.at + 2)
        return replace(self.step, events=tuple(self.events), ops=tuple(self.ops), begun=())

    def _places(self) -> Iterator[tuple[float, Event]]:
        """Events with their operators; between two: half an operator behind the one that began last."""
        last = -1
        for number, (event, op) in enumerate(zip(self.step.events, self.step.ops, strict=True)):
            last = last if op is None else op
            begun = self.step.begun[number] - 1 if self.step.begun else last
            yield (begun + 0.5, event) if op is None else (op, event)

    def _own(self) -> dict[int, list[Event]]:
        """By operator what it takes and gives back itself."""
        self.places = list(self._places())
        taken: dict[int, float] = {}
        found: dict[int, list[Event]] = {}
        inside = set[int]()
        for place, event in self.places:
            if event.bytes:
                taken[event.block] = place
            elif taken.get(event.block) == place and event.block not in self.tensor_in:
                inside.add(event.block)
        for place, event in self.places:
            if event.block in inside:
                found.setdefault(int(place), []).append(event)
        return found

    def _run(self, op: int) -> None:
        """A problem op runs first: its graph's first operator, and what comes before; the others when they come."""
        piece = self.pieces[op]
        self._pass_until(piece.ops[0])
        self._take(op, piece.tensors - self.live[op].keys())

    def _pass_until(self, place: float) -> None:
        """The step's own events up to there, as far as no plan decides them."""
        self.at = int(place)
        while self.reached < len(self.places) and self.places[self.reached][0] <= place:
            event = self.places[self.reached][1]
            self.reached += 1
            name = self.tensor_in.get(event.block)
            if name is None:
                self._add(event)
            elif event.bytes:
                self._take(self.makers[name][0], [name])
            else:
                self.gone.add(name)
                self._free_finished(name)

    def _again(self, op: int) -> None:
        """What runs again takes what it took, and keeps its output."""
        name: dict[int, int] = {}
        for event in (event for one in self.pieces[op].ops for event in self.own.get(one, ())):
            if event.bytes:
                name[event.block], self.next = self.next, self.next + 1
            self._add(event._replace(block=name[event.block]))
        self._take(op, self.pieces[op].tensors)

    def _take(self, op: int, names: Iterable[TensorId]) -> None:
        for name in sorted(names, key=str):
            if name in self.request and name not in self.live[op]:
                self.live[op][name], self.next = self.next, self.next + 1
                self._add(self.request[name]._replace(block=self.next - 1))

    def _release(self, op: int, *, last: bool) -> None:
        if last:
            self.done.add(op)
        for name in list(self.live[op]):
            if not last or name in self.gone or op != self.makers[name][-1]:
                self._free(op, name)

    def _free_finished(self, name: TensorId) -> None:
        for op in self.makers[name]:
            if op in self.done and name in self.live[op]:
                self._free(op, name)

    def _free(self, op: int, name: TensorId) -> None:
        self._add(Event(self.live[op].pop(name), 0))

    def _add(self, event: Event) -> None:
        self.events.append(event)
        self.ops.append(self.at)


def blocks_made(step: Requests, known: Sequence[Event]) -> set[int]:
    """Blocks of a planned step that the plain one did not have: they hold outputs, or temporaries once more."""
    return {event.block for event in step.events} - {event.block for event in known}
