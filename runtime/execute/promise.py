"""What an executed plan promises of memory, and what must hold around a step for the promise to be kept."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress

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

    def lacking_bytes(self) -> int:
        """How much must go before the step, so that the device can hold the promised peak beside what is in use."""
        return max(0, self.peak_bytes + max(0, self._more_bytes()) - memory_limit_bytes(self._device))

    def require_room(self) -> None:
        """Refuse a step whose promised peak the device cannot hold now (`InvalidInput`)."""
        if self.lacking_bytes() > 0 and self._more_bytes() > 0:
            gc.collect()  # garbage in cycles may hold what the profiled step found freed; looking takes long
        if self.lacking_bytes() == 0:
            return
        more, limit = self._more_bytes(), memory_limit_bytes(self._device)
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
    """What earlier steps returned and their caller still holds: on the host during a step that needs their memory.

    A loop that says `done = executor.run(step)` holds the last loss during the next step, one that appends each to a
    list holds them all; the profiled step saw none. Where there is room for them they stay, since a copy to the host
    and back takes some tens of microseconds, and the step's peak is higher by their size.
    """

    def __init__(self, device: torch.device, granule_bytes: int | None) -> None:
        self._device = device
        self._granule_bytes = granule_bytes or 1
        self._tensors: list[weakref.ref[torch.Tensor]] = []

    def remember(self, value: object) -> None:
        """Take note of the tensors in what a step returned; those of earlier steps are known as long as they live."""
        alive = [reference for reference in self._tensors if reference() is not None]
        new = [weakref.ref(tensor) for tensor in tensors_in(value) if tensor.device == self._device]
        self._tensors = alive + new

    @contextmanager
    def away(self, lacking_bytes: int) -> Iterator[None]:
        """Inside, the oldest are on the host, as many as free that many bytes; operators bring them back.

        So they do afterwards where the device is still full, since a step has failed and what it held lives on.
        """
        parked: list[torch.Tensor] = []
        for reference in self._tensors:
            tensor = reference()
            if lacking_bytes <= 0:
                break
            if tensor is not None and core.why_it_stays(tensor) is None:
                core.swap_out(tensor)
                parked.append(tensor)
                blocks = -(-tensor.untyped_storage().nbytes() // self._granule_bytes)
                lacking_bytes -= blocks * self._granule_bytes
        try:
            yield
        finally:
            for tensor in parked:
                with suppress(torch.OutOfMemoryError):
                    core.ensure_in(tensor)
