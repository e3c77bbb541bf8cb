"""A step as requests and frees: as it was recorded, under a swap schedule, and repeated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from solvers.ir.fields import TensorId
from solvers.ir.requests import HeldRun, StepRequests, in_use
from solvers.ir.schedule import Schedule
from solvers.timeline.segments.replay import Event


@dataclass(frozen=True)
class Requests:
    """What is in use when a step begins, and what the step asks for.

    `ops[i]` is the operator during which `events[i]` happens, None between two, and `begun[i]` how many operators have
    begun by then; empty where nobody counted: an event between two then follows the last operator that asked for
    anything. `block_of` says which block a tensor
    lies in, `carried` which block the step leaves in the place of one that it finds and frees; None: any of that size.
    """

    held: tuple[Event, ...]
    events: tuple[Event, ...]
    ops: tuple[int | None, ...]
    block_of: Mapping[TensorId, int]
    carried: Mapping[int, int] | None = None
    begun: tuple[int, ...] = ()

    def fresh(self) -> int:
        """A number beyond those of all blocks."""
        return 1 + max((event.block for event in (*self.held, *self.events)), default=-1)


def held_before(events: Sequence[Event], end: int) -> list[Event]:
    """The requests among the first `end` events whose blocks are still in use then, in order."""
    held: dict[int, Event] = {}
    for event in events[:end]:
        if event.bytes:
            held[event.block] = event
        else:
            held.pop(event.block, None)
    return list(held.values())


def under_schedule(step: Requests, schedule: Schedule) -> Requests:
    """The step where tensors leave and return: each gives its block back at its release, and takes another.

    As the executor does: a release follows the operator before at once, a swap-in's block is taken right before the
    operator itself. A tensor that has been freed by then neither leaves nor returns.
    """
    return _Walk(step, schedule).planned()


class _Walk:
    """One pass over the step's events; `name` is what a block is called after its return, None while it is away."""

    def __init__(self, step: Requests, schedule: Schedule) -> None:
        self.step = step
        self.sizes = {event.block: event for event in (*step.held, *step.events) if event.bytes}
        self.live = {event.block for event in step.held}
        self.next = step.fresh()
        self.name: dict[int, int | None] = {}
        self.events: list[Event] = []
        self.ops: list[int | None] = []
        self.due: list[tuple[int, bool, int]] = []
        for action in schedule.actions:
            if action.do in ("release", "swap_in") and action.op is not None:
                returns = action.do == "swap_in"
                blocks = (step.block_of[name] for name in action.data if name in step.block_of)
                self.due.extend((action.op, returns, block) for block in blocks)
        self.due.sort(key=lambda due: due[:2])
        self.reached = 0

    def planned(self) -> Requests:
        last = -1
        for place, (event, op) in enumerate(zip(self.step.events, self.step.ops, strict=True)):
            if op is not None:
                last = op
            begun = self.step.begun[place] if self.step.begun else last + 1
            self._act(begun if op is None else op, returns=op is not None)
            self._pass(event, op)
        self._act(self.due[-1][0] if self.due else 0, returns=True)
        carried = self.step.carried
        if carried is not None:
            carried = {held: name for held, left in carried.items() if (name := self.name.get(left, left)) is not None}
        return replace(self.step, events=tuple(self.events), ops=tuple(self.ops), carried=carried, begun=())

    def _act(self, op: int, returns: bool) -> None:
        """What is due before that operator, swap-ins of its own only where it begins."""
        while self.reached < len(self.due) and self.due[self.reached][:2] <= (op, returns):
            at, coming, block = self.due[self.reached]
            self.reached += 1
            if block not in self.live:
                continue
            name = self.name.get(block, block)
            if coming and name is None:
                self.name[block], self.next = self.next, self.next + 1
                self._add(self.sizes[block]._replace(block=self.next - 1), at)
            elif not coming and name is not None:
                self._add(Event(name, 0), at)
                self.name[block] = None

    def _pass(self, event: Event, op: int | None) -> None:
        if event.bytes:
            self.live.add(event.block)
            self._add(event, op)
            return
        self.live.discard(event.block)
        name = self.name.get(event.block, event.block)
        if name is not None:  # else it is away, and never read again
            self._add(Event(name, 0), op)

    def _add(self, event: Event, op: int | None) -> None:
        self.events.append(event)
        self.ops.append(op)


def repeated(step: Requests, times: int) -> list[Event]:
    """What is in use when the step begins, and then the step's events several times over.

    A block that the step finds and frees (the gradients of the step before) is, the next time, one of the same size
    that the step before made and left; where none was left, it was there for the first time only.
    """
    events = list(step.held)
    fresh = step.fresh()
    name = {event.block: event.block for event in events}
    for _ in range(times):
        made, found = dict[int, int](), dict(name)
        for event in step.events:
            if event.bytes:
                made[event.block] = fresh
                events.append(event._replace(block=fresh))
                fresh += 1
            elif event.block in made:
                events.append(event._replace(block=made.pop(event.block)))
            elif event.block in found:
                events.append(event._replace(block=found.pop(event.block)))
        name = _carried(step, name, found, made)
    return events


def _carried(
    step: Requests, name: Mapping[int, int], found: Mapping[int, int], made: Mapping[int, int]
) -> dict[int, int]:
    """What each block that the step finds is called in its next round."""
    if step.carried is not None:
        taken = {held: made[left] for held, left in step.carried.items() if left in made}
        return {held: taken.get(held, block) for held, block in name.items() if held in found or held in taken}
    sizes = {event.block: event.bytes for event in (*step.held, *step.events) if event.bytes}
    left: dict[int, list[int]] = {}
    for block, now in made.items():
        left.setdefault(sizes[block], []).append(now)
    carried = dict(found)
    for block in name:
        if block not in found and left.get(sizes[block]):
            carried[block] = left[sizes[block]].pop(0)
    return carried


def recorded(told: StepRequests, runs: Sequence[HeldRun] | None = None) -> Requests:
    """A profiled step as it comes again, on what its allocator held after it or on what it holds now (`runs`).

    A block that the step frees and that is not in use now at its address is taken to be another of its size.
    """
    before = in_use(tuple(told.runs))
    now = before if runs is None else in_use(tuple(runs))
    name = _moved(before, now, [held for held, _ in told.carried])
    events, ops, begun = list[Event](), list[int | None](), list[int]()
    for block, size, stream, op in told.events:
        called = block if block >= 0 else name[block]
        if called is not None:
            events.append(Event(called, size, stream))
            ops.append(None if op < 0 else op)
            begun.append(-1 - op if op < 0 else op + 1)
    held = tuple(Event(-1 - address, size) for address, size in now.items())
    carried = {called: left for block, left in told.carried if (called := name[block]) is not None}
    return Requests(held, tuple(events), tuple(ops), dict(told.block_of), carried, tuple(begun))


def _moved(before: Mapping[int, int], now: Mapping[int, int], blocks: Sequence[int]) -> dict[int, int | None]:
    """What blocks in use before are called now."""
    name: dict[int, int | None] = {block: block for block in blocks if now.get(-1 - block) == before[-1 - block]}
    others: dict[int, list[int]] = {}
    for address, size in now.items():
        if -1 - address not in name:
            others.setdefault(size, []).append(-1 - address)
    for block in blocks:
        if block not in name:
            alike = others.get(before[-1 - block])
            name[block] = alike.pop(0) if alike else None
    return name
