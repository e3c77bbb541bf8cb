"""What an executed plan promises of memory, and what must hold around a step for the promise to be kept."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from runtime.device import memory_limit_bytes, memory_stats
from runtime.device.native import core
from runtime.storage.access import tensors_in
from solvers.ir.errors import InvalidInput
from solvers.ir.graph import OpGraph
from solvers.ir.schedule import Schedule
from solvers.timeline import promised_peak_bytes


class Promise:
    """The peak that a schedule promises on the graph that it was planned for, and whether it can be kept now.

    `resident_bytes` were in use when the profiled step began; what lives beyond them stays in use during the step, and
    the promise rises by as much. None where the profile does not say.
    """

    def __init__(self, schedule: Schedule, graph: OpGraph, device: torch.device) -> None:
        sizes = {tensor.id: graph.block_bytes(tensor) for tensor in graph.tensors}
        self.peak_bytes = promised_peak_bytes(graph.memory_bytes, sizes, schedule)
        self.resident_bytes = graph.resident_bytes
        self._device = device

    def require_room(self) -> None:
        """Refuse a step whose promised peak the device cannot hold now (`InvalidInput`)."""
        more = self._more_bytes()
        if more > 0:
            gc.collect()  # garbage in cycles may hold what the profiled step found freed
            more = self._more_bytes()
        limit, peak = memory_limit_bytes(self._device), self.peak_bytes + max(0, more)
        if peak <= limit:
            return
        if more > 0:
            raise InvalidInput(
                f"the plan's peak is {self.peak_bytes} bytes, and {more} more are in use than when its step was "
                f"profiled, but {self._device} has {limit} bytes: free what the step does not need, or profile and "
                "plan it again"
            )
        raise InvalidInput(
            f"the plan's peak is {self.peak_bytes} bytes, but {self._device} has {limit}: plan for that budget"
        )

    def _more_bytes(self) -> int:
        if self.resident_bytes is None:
            return 0
        return memory_stats(self._device).allocated_bytes - self.resident_bytes


class KeptResults:
    """What earlier steps returned and their caller still holds: on the host while the next step runs.

    A loop that says `done = executor.run(step)` holds the last loss during the next step, one that appends each to a
    list holds them all; the profiled step saw none.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._tensors: list[weakref.ref[torch.Tensor]] = []

    def remember(self, value: object) -> None:
        """Take note of the tensors in what a step returned; those of earlier steps are known as long as they live."""
        alive = [reference for reference in self._tensors if reference() is not None]
        new = [weakref.ref(tensor) for tensor in tensors_in(value) if tensor.device == self._device]
        self._tensors = alive + new

    @contextmanager
    def away(self) -> Iterator[None]:
        """Inside, those still held are on the host where they can leave; operators bring them back."""
        parked = [reference for reference in self._tensors if _park(reference())]
        try:
            yield
        finally:
            for reference in parked:
                _bring_back(reference())


def _park(tensor: torch.Tensor | None) -> bool:
    if tensor is None or core.why_it_stays(tensor) is not None:
        return False
    core.swap_out(tensor)
    return True


def _bring_back(tensor: torch.Tensor | None) -> None:
    if tensor is not None:
        core.ensure_in(tensor)
