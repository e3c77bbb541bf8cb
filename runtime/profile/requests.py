"""What a program asked of a device's allocator, in order: what a replay of the allocator's rules needs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import torch

from runtime.device.native import core
from runtime.profile.alike import Ran
from runtime.profile.recording import detailed_recording
from solvers.ir.errors import InvalidInput
from solvers.ir.fields import TensorId
from solvers.ir.graph import OpGraph

ResultT = TypeVar("ResultT")


class Request(NamedTuple):
    """Bytes taken for the block at an address (positive) or given back (negative).

    `op` is the operator of the recording during which it happened, None between two; `stream` the thread's current
    one where bytes were taken; `begun` how many operators had begun by then.
    """

    address: int
    bytes: int
    op: int | None
    stream: int
    begun: int = 0


@dataclass(frozen=True)
class RecordedStep:
    """A profiled step with its requests.

    `request_of` says which request took a tensor's block, for tensors that the step itself made; `ran` is what the
    step did, to compare with another recording's.
    """

    graph: OpGraph
    requests: tuple[Request, ...]
    request_of: Mapping[TensorId, int]
    ran: Ran

    @property
    def operator_ids(self) -> tuple[int, ...]:
        """The sequence of operators."""
        return self.ran.ids


@dataclass(frozen=True)
class Recorded:
    """The requests of a call, and what it ran."""

    requests: tuple[Request, ...]
    ran: Ran

    @property
    def operator_ids(self) -> tuple[int, ...]:
        """The sequence of its operators."""
        return self.ran.ids


def record_requests(call: Callable[[], ResultT], device: torch.device) -> tuple[ResultT, Recorded]:
    """Call something, and tell what it asked of the allocator of `device`, which has an index.

    Threads that it starts itself are not seen, autograd's are. Raises `InvalidInput` for the CPU, and where a
    torch.profiler runs.
    """
    if device.type == "cpu":
        raise InvalidInput("device cpu has no allocator that counts segments: record on sim or cuda")
    with detailed_recording(device, timed=False) as recorder:
        result = call()
    return result, Recorded(requests_of(recorder), Ran.of(recorder))


def requests_of(recorder: core.DetailedRecorder) -> tuple[Request, ...]:
    """A recording's requests."""
    return tuple(
        Request(address, size, None if op < 0 else op, stream, -1 - op if op < 0 else op + 1)
        for address, size, op, stream in recorder.requests()
    )


def request_of(recorder: core.DetailedRecorder) -> dict[TensorId, int]:
    """The request that took each storage's block, by the storage's number in the graph."""
    storages = enumerate(recorder.storages())
    return {number: storage.request for number, storage in storages if storage.request is not None}
