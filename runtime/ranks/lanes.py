"""The streams on which operations between devices run, and what happens before and after them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.device.native import load


@dataclass(frozen=True)
class Issue:
    """One rank's share of an operation, put on its stream behind all that the stream held.

    `tick` numbers the operations of the stream. `ready_ns` is when it could begin, as far as this rank goes.
    """

    stream: int
    tick: int
    ready_ns: int

    def stream_ns(self) -> int:
        """When the stream has done what it was given before, now that this is known."""
        return int(load("runtime._sim").stream_ns(self.stream))


@dataclass(frozen=True)
class End:
    """The end of an operation on one rank's stream."""

    handle: int

    def wait_on_stream(self, stream: torch.Stream) -> None:
        """What this stream is given from now on runs after the end."""
        load("runtime._sim").comm_wait(stream.stream_id, self.handle)

    def wait_on_host(self) -> None:
        """The host of the current device goes on after the end."""
        load("runtime._sim").comm_host_wait(self.handle)


class Lane:
    """A stream of one rank for one group, or for messages of one pair in one direction (`a` to `b`)."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.Stream(device=device)

    def issue(self, name: str, reads: Sequence[Tensor], writes: Sequence[Tensor]) -> Issue:
        """Puts an operation behind the current stream's work, as NCCL does. Raises the race check's error."""
        native = load("runtime._sim")
        native.stream_wait_stream(self.stream.stream_id, torch.accelerator.current_stream().stream_id)
        tick, ready_ns = native.comm_issue(self.stream.stream_id, list(reads), list(writes), name)
        return Issue(self.stream.stream_id, tick, ready_ns)


def bytes_of(tensor: Tensor) -> Tensor:
    """A tensor on the CPU with the bytes that a device's tensor has at this moment, not copied."""
    alias: Tensor = load("runtime._sim").alias(tensor.detach())
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
    members = [(issue.stream, issue.tick) for issue in issues]
    handles = load("runtime._sim").comm_finish(members, name, start_ns, end_ns, size_bytes, list(moves))
    return [End(handle) for handle in handles]
