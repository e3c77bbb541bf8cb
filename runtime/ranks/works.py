"""What an operation of the group `sim` returns: something to wait for."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from runtime.ranks.lanes import Lane
from runtime.ranks.meeting import Meeting, Part


class Host(Protocol):
    """One rank's end of a group, as its works need it."""

    def settle(self, meeting: Meeting) -> None:
        """Returns once the operation has happened."""

    def host_waits(self, time_ns: int) -> None:
        """The rank's host goes on at that time."""

    def host_ns(self) -> int:
        """The rank's host clock."""


class SimWork(dist.Work):
    """An operation under way. `wait` makes the current stream wait, as NCCL's does; a barrier's makes the host wait.

    The tensors live at least until then; those of a work that is dropped instead, until the operation's end.
    """

    def __init__(self, group: Host, meeting: Meeting, part: Part, lane: Lane | None) -> None:
        super().__init__()
        self._group, self._meeting, self._part, self._lane = group, meeting, part, lane
        self._member = part.member
        self._waited = False

    def __del__(self) -> None:
        """A program may drop a send: its memory is then used again only after the operation, as under NCCL."""
        if self._lane is not None and not self._waited:
            for tensor in (*self._part.inputs, *self._part.outputs):
                tensor.record_stream(self._lane.stream)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Orders what follows after the operation; returns when its time is known, which every member must help to."""
        self._group.settle(self._meeting)
        self._waited = True
        part = self._part
        if self._lane is None:
            self._group.host_waits(self._meeting.end_ns)
        else:
            end = self._meeting.ends[self._member]
            if part.call.kind == "barrier":
                end.wait_on_host()
            else:
                end.wait_on_stream(torch.accelerator.current_stream().stream_id)
        return True

    def synchronize(self) -> None:
        """The same as `wait`."""
        self.wait()

    def block_current_stream(self) -> None:
        """The same as `wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether the operation has happened and the host's clock has reached its end."""
        return self._meeting.done and self._group.host_ns() >= self._meeting.end_ns

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
