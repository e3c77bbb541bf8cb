"""The streams on which operations between devices run, and what happens before and after them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from runtime.device.native import core, load


@dataclass(frozen=True)
class Issue:
    """One rank's share of an operation, put on its stream behind all that the stream held.

    `ready_ns` is when it could begin, as far as this rank goes and was known then.
    """

    lane: "Lane"
    ready_ns: int

    @property
    def stream(self) -> int:
        """The stream's id."""
        return self.lane.stream.stream_id

    def earliest_ns(self) -> int:
        """When it can begin, now that the end of the operation before it on the stream is known.

        The stream's own clock would not do: it counts what later operations wait for, too.
        """
        return max(self.ready_ns, self.lane.end_ns)


class End(Protocol):
    """The end of an operation on one rank's stream."""

    def wait_on_stream(self, stream: int) -> None:
        """What the stream of this id is given from now on runs after the end."""

    def wait_on_host(self) -> None:
        """The host of the current device goes on after the end."""


class Lane:
    """A stream of one rank for one group, or for messages of one pair in one direction (`a` to `b`)."""

    def __init__(self, device: torch.device, index: int) -> None:
        """The device's `index`-th lane, a stream that no program is given."""
        identity = load("runtime._sim").own_stream(device.index, index)
        kind = torch.accelerator.current_stream(device.index).device_type
        self.stream = torch.Stream(stream_id=identity, device_index=device.index, device_type=kind)
        self.end_ns = 0
        """The end of its latest operation that has happened."""

    def issue(self, name: str, reads: Sequence[Tensor], writes: Sequence[Tensor]) -> Issue:
        """Puts an operation behind the current stream's work, as NCCL does. Raises the race check's error."""
        native = load("runtime._sim")
        native.stream_wait_stream(self.stream.stream_id, torch.accelerator.current_stream().stream_id)
        ready_ns = native.comm_issue(self.stream.stream_id, list(reads), list(writes), name)
        return Issue(self, ready_ns)


@contextmanager
def unobserved() -> Iterator[None]:
    """What the calling thread computes within the block is no operator of its program: devices do that by themselves.

    A session of the rank that happens to come last would count it otherwise.
    """
    core.hold_unobserved(True)
    try:
        yield
    finally:
        core.hold_unobserved(False)


def hold(tensors: Sequence[Tensor]) -> None:
    """Those that a session has sent to the host come back, and all stay where they are until they are let go."""
    core.hold_storages(tensors)


def let_go(tensors: Sequence[Tensor]) -> None:
    """They may leave again, behind what their streams hold."""
    core.let_go_of_storages(tensors)


@contextmanager
def waiter(wait: Callable[[int], None]) -> Iterator[None]:
    """Within the block `wait(device)` is called where a host is about to wait for operations that have not happened."""
    native = load("runtime._sim")
    native.set_comm_waiter(wait)
    try:
        yield
    finally:
        native.set_comm_waiter(None)


def host_jump(device: int, time_ns: int) -> None:
    """The device's host goes on at that time, if it is not further."""
    load("runtime._sim").host_jump(time_ns, device)


def raise_races(device: int) -> None:
    """Raises a device's oldest race that was not raised yet, where races are raised: some are known at the end only."""
    load("runtime._sim").raise_races(device)


def bytes_of(tensor: Tensor) -> Tensor | None:
    """A tensor on the CPU with the bytes that a device's tensor has at this moment, not copied.

    Where there are shapes only: a copy of its numbers if they are known, else None (csrc/README.md).
    """
    alias: Tensor | None = load("runtime._sim").alias(tensor.detach())
    return alias


def finish(
    issues: Sequence[Issue],
    name: str,
    start_ns: int,
    end_ns: int,
    size_bytes: int,
    moves: Sequence[tuple[int, Tensor, Tensor]],
) -> list[End]:
    """Ends an operation on every member's stream: each end comes after every member's begin.

    `moves` are (member, output, its new content on the CPU): the bytes arrive *late*, when something that waits for the
    end is about to run, so that a program which forgets to wait reads what was there before.
    """
    streams = [issue.stream for issue in issues]
    for issue in issues:
        issue.lane.end_ns = end_ns
    ends: list[End] = load("runtime._sim").comm_finish(streams, name, start_ns, end_ns, size_bytes, list(moves))
    return ends
