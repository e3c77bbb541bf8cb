"""One of the simulated devices: its clocks, its memory, what happened on it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from runtime.device import caching, host_work
from runtime.device.arguments import MOST_BYTES, require_integer
from runtime.device.memory import MemoryStats, memory_stats
from runtime.device.records import Counters, TraceRecord
from solvers.ir.errors import InvalidInput


class DeviceView:
    """Device `sim:index`; made by `SimDevice.at`."""

    def __init__(self, native: ModuleType, index: int) -> None:
        self._native = native
        self.index = index
        self.device = torch.device("sim", index)

    @property
    def capacity_bytes(self) -> int:
        """The device's memory."""
        return int(self._native.capacity(self.index))

    def set_capacity(self, capacity_bytes: int) -> None:
        """Sets the device's memory; raises `InvalidInput` where more is in use."""
        self.require_capacity(capacity_bytes)
        self._native.set_capacity(capacity_bytes, self.index)

    def require_capacity(self, capacity_bytes: int) -> None:
        """Raise `InvalidInput` unless the device's memory may have so many bytes now."""
        require_integer("capacity_bytes", capacity_bytes, 0, MOST_BYTES, "give the device's bytes")
        in_use = self.bytes_in_use()
        if capacity_bytes < in_use:
            name = "sim" if self._native.device_count() == 1 else self.device
            raise InvalidInput(
                f"capacity_bytes of {capacity_bytes} is below the {in_use} bytes in use on device {name}: "
                "free tensors first or ask for more"
            )

    def bytes_in_use(self) -> int:
        """Bytes of blocks that are alive, or freed and still waiting for a recorded stream."""
        return int(self._native.bytes_in_use(self.index))

    def memory(self) -> MemoryStats:
        """The device's memory statistics."""
        return memory_stats(self.device)

    def now_ns(self) -> int:
        """The virtual time at which the compute (default) stream has done its queued work."""
        return int(self._native.stream_ns(self._native.default_stream(self.index)))

    def stream_ns(self, stream: torch.Stream) -> int:
        """The virtual time at which a stream has done its queued work."""
        return int(self._native.stream_ns(stream.stream_id))

    def host_ns(self) -> int:
        """The virtual clock of the device's host, which advances by launches and by waiting.

        The time that Python takes counts nothing. A thread that turns from one device to another takes its host's time
        along, so that a program of one thread has one host.
        """
        return int(self._native.host_ns(self.index))

    def synchronize(self) -> None:
        """Lets the device's host wait for its streams."""
        self._native.synchronize(self.index)

    def host_access(self, tensor: Tensor, write: bool, name: str = "host access") -> None:
        """Says that the launching thread reads or writes the tensor's bytes now, for the race check.

        What the device's copies do with page-locked bytes comes before if the host has waited for it (an event's, a
        stream's, the device's `synchronize()`, or a `query()` that was true), and after if it is launched from now on;
        else it is a race. A write stands for a read of the same bytes. Of pageable memory nothing is checked, as no
        asynchronous copy touches it. For operators see `SimDevice.checking_host`.

        Raises:
            InvalidInput: the tensor is not the host's.
            RuntimeError: the access races, in mode raise.
        """
        host_work.require_host([tensor])
        self._native.host_access(self.index, [] if write else [tensor], [tensor] if write else [], name)

    def host_task(
        self,
        duration_ns: int,
        after: torch.Event | None = None,
        *,
        reads: Sequence[Tensor] = (),
        writes: Sequence[Tensor] = (),
        work: Callable[[], object] | None = None,
        name: str = "host task",
    ) -> torch.Event:
        """Gives the host's worker, a thread beside the launching one, a task that takes `duration_ns`.

        It begins when the worker is free, `after` is over, and not before the launching host's now; the launching
        thread goes on at once. Streams and the host wait for the event that is returned; synchronizing the device waits
        for no task. The trace's kind is `host`.

        `reads` and `writes` are what it touches of the host's memory, for the race check. `work` is called at once, as
        a kernel's numbers are computed when it is launched; what its operators touch is checked too, as the task's.

        Raises:
            InvalidInput: the duration is no integer of [0, 10**15), or a tensor is not the host's.
            RuntimeError: one of its accesses races, in mode raise; or what `work` raises.
        """
        host_work.require_host([*reads, *writes])
        return host_work.start_task(
            self._native, self.device, host_work.Task(duration_ns, after, tuple(reads), tuple(writes), work, name)
        )

    def counters(self) -> Counters:
        """What happened on the device since the last reset."""
        return Counters(**self._native.counters(self.index))

    def trace(self) -> list[TraceRecord]:
        """The device's records since the last reset, in the order of issue."""
        records = (TraceRecord(*record) for record in self._native.trace())
        return [record for record in records if record.device == self.index]

    def reuse_intervals(self) -> list[int]:
        """Kernels launched between giving a block away and its bytes' return to the pool, since the last reset.

        One number for each freed block that the swap engine took from the program (counted from the hand-over) or that
        `record_stream` named (from its first call). SmartSwap §6.4 calls it the memory block reuse interval.
        """
        return [int(kernels) for kernels in self._native.reuse_intervals(self.index)]

    def stitches(self) -> caching.Stitches:
        """What `CachingAllocator(stitching=True)` did since the last reset."""
        return caching.Stitches(*self._native.stitches(self.index))

    def record_memory(self, most: int = 100_000) -> None:
        """Keeps the allocator's last `most` steps for snapshots, from none on; 0 keeps none, as at first."""
        self._require_segments()
        require_integer("most", most, 0, MOST_BYTES, "give the number of steps to keep")
        self._native.record_memory(most, self.index)

    def snapshot(self) -> dict[str, Any]:
        """The segments now, and the steps recorded, as `torch.cuda.memory._snapshot()` gives them; modelled."""
        self._require_segments()
        return caching.snapshot(self._native, self.index)

    def dump_snapshot(self, path: Path | str) -> None:
        """Writes the snapshot to a file for PyTorch's memory viewer, pytorch.org/memory_viz."""
        caching.dump(self.snapshot(), path)

    def _require_segments(self) -> None:
        if not self._native.caching():
            raise InvalidInput("mode exact has no segments to show: call use_sim(allocator='caching') first")
