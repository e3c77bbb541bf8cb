"""What an operation of the group `sim` returns: something to wait for."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from runtime.device.native import core
from runtime.ranks.lanes import Lane, let_go
from runtime.ranks.meeting import Meeting, Part

POLL_NS = 1000
"""What a look at an operation that is under way takes on the host."""
NO_WINDOW = ("barrier", "message")
"""Operations whose waits are not told to who recomputes: nobody computes there, or a pipeline's neighbour is late."""


class Host(Protocol):
    """One rank's end of a group, as its works need it."""

    def settle(self, meeting: Meeting) -> None:
        """Returns once the operation has happened."""

    def poll(self, meeting: Meeting) -> None:
        """The operation has not happened yet, and the rank may ask again and again."""

    def host_waits(self, time_ns: int) -> None:
        """The rank's host goes on at that time."""

    def host_ns(self) -> int:
        """The rank's host clock."""


@contextmanager
def _window(device: torch.device | None) -> Iterator[None]:
    """Around a wait: what somebody has planned for it runs first; None: nobody is told."""
    opened = device is not None and core.begin_wait(device)
    try:
        yield
    finally:
        if opened and device is not None:
            core.end_wait(device)


class SimWork(dist.Work):
    """An operation under way. `wait` makes the current stream wait, as NCCL's does; a barrier's makes the host wait.

    The tensors live and stay on their device at least until then; those of a work that is dropped instead, until the
    operation's end. What a message sent is let go by `wait`, though the work lives on.
    """

    def __init__(self, group: Host, meeting: Meeting, part: Part, lane: Lane | None) -> None:
        super().__init__()
        self._group, self._meeting, self._part, self._lane = group, meeting, part, lane
        self._member = part.member
        self._waited = False

    def __del__(self) -> None:
        """A program may drop a send: its memory is then used again only after the operation, as under NCCL."""
        self.let_go()

    def let_go(self) -> None:
        """Nobody will wait any more: tensors of an operation that was not awaited live until its end only."""
        if self._waited:
            return
        part, self._waited = self._part, True
        if self._lane is not None:
            tensors = (*part.inputs, *part.outputs)
            for tensor in tensors:
                tensor.record_stream(self._lane.stream)
            let_go(tensors)
        self._part = replace(part, inputs=[], outputs=[])

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Orders what follows after the operation; returns when its time is known, which every member must help to.

        The first wait is a window for those who recompute (`runtime.recompute`): the operation has been launched, and
        what they launch before the stream waits runs beside it.
        """
        first = not self._waited
        device = self._lane.stream.device if first and self._lane is not None else None
        with _window(device if self._part.call.kind not in NO_WINDOW else None):
            self._group.settle(self._meeting)
            self._waited = True
            self._order()
        if first and self._lane is not None:
            let_go((*self._part.inputs, *self._part.outputs))
        if self._part.call.kind == "message":  # as NCCL's, where pipelines keep works of messages long gone
            self._part.inputs = []
        return True

    def _order(self) -> None:
        """What the current stream, or the host, does from now on comes after the operation."""
        if self._lane is None:
            self._group.host_waits(self._meeting.end_ns)
            return
        end = self._meeting.ends[self._member]
        if self._part.call.kind == "barrier":
            end.wait_on_host()
        else:
            end.wait_on_stream(torch.accelerator.current_stream().stream_id)

    def synchronize(self) -> None:
        """The same as `wait`."""
        self.wait()

    def block_current_stream(self) -> None:
        """The same as `wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether the operation has happened and the host's clock has reached its end.

        A look costs the host `POLL_NS`, and one in vain lets the other ranks go on (in processes: waits for them), so
        that a program may look again and again.
        """
        if self._meeting.done and self._group.host_ns() >= self._meeting.end_ns:
            return True
        self._group.host_waits(self._group.host_ns() + POLL_NS)
        if not self._meeting.done:
            self._group.poll(self._meeting)
        return False

    def is_success(self) -> bool:
        """Whether it happened without a mismatch."""
        return self._meeting.done and self._meeting.error is None

    def result(self) -> list[Tensor]:
        """The outputs."""
        return self._part.outputs

    def get_future(self) -> Future[list[Tensor]]:
        """A future of the outputs that is done on the operation's stream; others are let go on until it is."""
        self._group.settle(self._meeting)
        value = [*self._part.outputs, *self._part.inputs]
        if self._lane is None:
            done: Future[list[Tensor]] = Future()
            done.set_result(value)
            return done
        found: Future[list[Tensor]] = Future(devices=[self._lane.stream.device])
        with self._lane.stream:
            found.set_result(value)
        return found


class SimWorks(dist.Work):
    """Several operations as one: all of a block of `_coalescing_manager(device=…)`."""

    def __init__(self, works: Sequence[SimWork]) -> None:
        super().__init__()
        self._works = tuple(works)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits for each of them."""
        return all([work.wait(timeout) for work in self._works])

    def is_completed(self) -> bool:
        """Whether all are."""
        return all(work.is_completed() for work in self._works)
