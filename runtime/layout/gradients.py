"""Gradients on their way from autograd to the masters: into their parameters' place where that is right, then out."""

from collections.abc import Callable, Mapping
from threading import Condition

import torch
from torch import Tensor

from runtime.device import shapes_only
from runtime.device.native import core
from runtime.layout.chunk import Chunk, Slot, pinned
from runtime.layout.host_lane import Done, HostLane
from runtime.layout.log import Log
from solvers.ir.errors import InvalidInput

ADDING_BYTES_PER_S = 10_000_000_000
"""What the host's sums of gradients read and write in a second: an assumption, on sim only; elsewhere they take what
they take."""


class Gradients:
    """Takes gradients from the working parameters, and gives them to the masters.

    `on_left` is called when a chunk's gradients are on their way, before the host has them; `on_outside` before a
    master gets one of its own. No two such calls are at once.
    """

    def __init__(self, log: Log, lane: HostLane) -> None:
        self.device, self.log = log.device, log
        self.on_left: Callable[[Chunk], None] = lambda chunk: None
        self.on_outside: Callable[[Chunk], None] = lambda chunk: None
        self._worker = lane
        self.lane: torch.Stream = core.copy_lanes(log.device)[1]
        self._leaving: list[tuple[torch.Event, Done | None]] = []
        self._apart = Condition()  # held while gradients are sent, never while autograd works
        self._outside: set[int] = set()
        self._backward = self._held_up = 0

    def begin(self) -> None:
        """A forward begins, whatever became of the backward before: what of it still waits to leave gives up."""
        with self._apart:
            self._backward += 1
            self._outside.clear()
            self._apart.notify_all()
            self._apart.wait_for(lambda: not self._held_up)

    def begin_outside(self, chunk: Chunk) -> None:
        """Autograd is about to add to a master what the program made of the master itself, as a penalty does.

        It does so in another thread than the one whose gradients leave: until `end_outside` this chunk's do not, and
        what it has sent is there.
        """
        with self._apart:
            self.on_outside(chunk)
            chunk.left_whole = False
            self.settle()
            self._outside.add(chunk.number)

    def end_outside(self, chunk: Chunk) -> None:
        """The master has it."""
        with self._apart:
            self._outside.discard(chunk.number)
            self._apart.notify_all()

    def take(self, chunk: Chunk, place: int, slot: Slot) -> bool:
        """Take a complete gradient; whether it was the last one that the chunk waits for."""
        gradient = slot.working.grad
        if gradient is None:
            return False
        if chunk.persistent:
            chunk.waiting.discard(place)
            self._keep(chunk, slot, gradient)
            return False
        slot.working.grad = None
        kept = graph_is_kept()
        with torch.no_grad():
            if place in chunk.came:  # a second backward before the first one's gradients have left
                self._add(chunk, place, slot, gradient)
            elif kept or not chunk.here or gradient.layout is not torch.strided:
                chunk.own[place] = gradient
            else:
                slot.working.data.copy_(gradient)
                chunk.overwritten.add(place)
                chunk.used = None
        chunk.came.add(place)
        chunk.waiting.discard(place)
        return not chunk.waiting

    def _keep(self, chunk: Chunk, slot: Slot, gradient: Tensor) -> None:
        """The gradient of what stays lies in room of its own, which is always there."""
        room = chunk.gradient_home(slot)
        chunk.left_whole = not chunk.waiting and not graph_is_kept()
        if gradient.requires_grad or gradient.layout is not torch.strided:
            return
        with torch.no_grad():
            if chunk.mixed:
                slot.working.grad = None
                if slot.master.grad is not None:
                    slot.master.grad.add_(gradient)
                    return
            elif gradient.data_ptr() == room.data_ptr():
                return
            room.copy_(gradient)
        slot.master.grad = room

    def _add(self, chunk: Chunk, place: int, slot: Slot, gradient: Tensor) -> None:
        held = chunk.own.get(place)
        if held is None:
            slot.working.data.add_(gradient)
        else:
            chunk.own[place] = held + gradient

    def leave(self, chunk: Chunk) -> None:
        """Send what has come to the host; the masters have it as soon as `settle` returns."""
        if chunk.came:
            with self._apart:
                self._let_outside_end(chunk)
                self._send(chunk)

    def _let_outside_end(self, chunk: Chunk) -> None:
        """It never does where adding to the master raised; then the next forward says so."""
        backward = self._backward
        self._held_up += 1
        try:
            self._apart.wait_for(lambda: chunk.number not in self._outside or self._backward != backward)
        finally:
            self._held_up -= 1
            self._apart.notify_all()
        if self._backward != backward:
            raise InvalidInput("a backward failed, and another forward has begun: its gradients are dropped")

    def _send(self, chunk: Chunk) -> None:
        self.lane.wait_event(torch.accelerator.current_stream(self.device).record_event())
        assert chunk.gradients is not None
        added = {place: one for place in sorted(chunk.came) if (one := chunk.slots[place].master.grad) is not None}
        target = (
            pinned(chunk.bytes, untouched=shapes_only(self.device)) if added and not chunk.mixed else chunk.gradients
        )
        with self.lane, torch.no_grad(), self.log.on(self.lane, "out", "offload", chunk.number):
            self._copy(chunk, target)
        chunk.left = self.lane.record_event()
        for place in sorted(chunk.came - added.keys()):
            slot = chunk.slots[place]
            slot.master.grad = chunk.gradient_home(slot)
        widened = self._accumulate(chunk, target, added) if added or chunk.mixed else None
        chunk.left_whole = not added and _complete(chunk) and not graph_is_kept()
        chunk.own.clear()
        chunk.came.clear()
        self._leaving.append((chunk.left, widened))
        self.on_left(chunk)

    def _copy(self, chunk: Chunk, target: Tensor) -> None:
        """All at once where all lie in the chunk, else one by one."""
        if not chunk.own and _complete(chunk):
            target.copy_(chunk.flat[: chunk.bytes], non_blocking=True)
            return
        for place in sorted(chunk.came):
            slot, own = chunk.slots[place], chunk.own.get(place)
            given = slot.working.data if own is None else own
            slot.view(target).copy_(given, non_blocking=True)
            if own is not None:
                own.record_stream(self.lane)

    def _accumulate(self, chunk: Chunk, staged: Tensor, added: Mapping[int, Tensor]) -> Done:
        """Add to gradients that are there already, on the host, as the device would have; the rest becomes masters'."""
        fresh = [chunk.slots[place] for place in sorted(chunk.came - added.keys())]

        def add() -> None:
            if shapes_only(self.device):
                return
            with torch.no_grad():
                for place, held in added.items():
                    held.add_(chunk.slots[place].view(staged))
                for slot in fresh:
                    chunk.gradient_home(slot).copy_(slot.view(staged))

        duration_ns = 3 * chunk.bytes * 1_000_000_000 // ADDING_BYTES_PER_S
        return self._worker.submit(add, duration_ns, chunk.left, f"sum gradients of chunk {chunk.number}")

    def settle(self) -> None:
        """Let the host wait until all gradients that left are there; those of a backward that failed, too."""
        while self._leaving:
            left, widened = self._leaving.pop()
            left.synchronize()
            if widened is not None:
                widened.wait()


def _complete(chunk: Chunk) -> bool:
    return len(chunk.came) == sum(slot.trainable for slot in chunk.slots)


def graph_is_kept() -> bool:
    """Whether the backward that runs now may come again over the same graph."""
    return torch._C._current_graph_task_id() == -1 or torch._C._autograd._get_current_graph_task_keep_graph()
