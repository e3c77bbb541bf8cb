"""A measured step by hand: blocks that are a chain of three operators, of which the backward pass reads the last two.

norm (100 B, nobody saves it) → widen (400 B, saved) → act (50 B, saved). Nothing is stored, so that all of it runs
again when autograd asks for act. Each block has a wait for a collective in its backward pass, after that.
"""

from dataclasses import dataclass, field

from runtime.recompute.course import LAST, Event, Happened, NodeShape, TapeShape
from runtime.recompute.footprint import CallFacts, Footprint, mark_of
from runtime.recompute.policy import ON_DEMAND, BlockPolicy
from runtime.recompute.tape import StorePolicy

SIZES = (100, 400, 50)
CHAIN = TapeShape(
    tuple(
        NodeShape(((index - 1, False),) if index else (), ((index, -1),), runs_again=True, communicates=False)
        for index in range(3)
    ),
    SIZES,
)
BEFORE = 1000
"""What is there before the step, and gradients do not change."""


@dataclass
class Device:
    """Memory that is counted, and its log."""

    now: int = BEFORE
    most: int = BEFORE
    events: list[Event] = field(default_factory=list)

    def take(self, size: int) -> None:
        """So many bytes more; negative: fewer."""
        self.now += size
        self.most = max(self.most, self.now)

    def note(self, tape: int, what: Happened, index: int = -1, *, died: tuple[int, ...] = ()) -> None:
        """An event, and the first storages that are found gone."""
        self.events.append((tape, what, index, self.most, self.now))
        self.most = self.now
        self.events += [(tape, Happened.DIED, value, self.now, self.now) for value in died]


def measured(calls: int) -> Footprint:
    """So many blocks one after the other."""
    device = Device()
    for call in range(calls):
        _forward(device, call)
    for call in reversed(range(calls)):
        _backward(device, call)
    device.note(-1, Happened.MARK, LAST)
    facts = [CallFacts(call, call - 1 if call else None, CHAIN, ON_DEMAND) for call in range(calls)]
    return Footprint(device.events, facts)


def _forward(device: Device, call: int) -> None:
    """Each result is let go once the next is made."""
    device.note(-1, Happened.MARK, mark_of(call, backward=False))
    for node, size in enumerate(SIZES):
        gone = (node - 2,) if node > 1 else ()
        device.take(-sum(SIZES[one] for one in gone))
        device.note(call, Happened.NODE, node, died=gone)
        device.take(size)
        device.note(call, Happened.MADE, node)
        if node:
            device.note(call, Happened.SAVE, node)
    device.take(-450)
    device.note(call, Happened.END, died=(1, 2))


def _backward(device: Device, call: int) -> None:
    device.note(-1, Happened.MARK, mark_of(call, backward=True))
    device.note(call, Happened.TAKE, 2)
    for node, size in enumerate(SIZES):
        device.note(call, Happened.RUN, node)
        device.take(size)
        device.take(-100 if node == 1 else 0)  # norm's result was for widen alone
        device.note(call, Happened.RAN, node)
    device.note(call, Happened.TAKEN, 2)
    device.note(-1, Happened.WAIT)
    device.take(-50)
    device.note(call, Happened.UNSAVE, 2)
    device.note(call, Happened.TAKE, 1)
    device.note(call, Happened.TAKEN, 1)
    device.take(30)  # what the backward pass itself takes for a while
    device.take(-30 - 400)
    device.note(call, Happened.UNSAVE, 1)


def policy(*store: int, backward: tuple[int, ...] = ()) -> BlockPolicy:
    """What stays of each node, and what runs again in the wait of the block behind."""
    return BlockPolicy(StorePolicy(store, others=False), {}, {0: backward} if backward else {})
