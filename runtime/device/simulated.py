"""The simulated accelerator's Python face: set-up, virtual clocks, races, traces and counters."""

import atexit
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils.backend_registration import generate_methods_for_privateuse1_backend, rename_privateuse1_backend

from runtime.device import caching, torch_sim
from runtime.device.arguments import END_OF_INT64, MOST_BYTES, require_finite, require_integer
from runtime.device.native import load, why_missing
from runtime.device.sim_modules import keep_parameters_of_moved_modules
from runtime.device.undeclared_writes import UNDECLARED_WRITES
from solvers.ir.errors import InvalidInput
from solvers.ir.hardware import Hardware

RaceMode = Literal["raise", "record", "off"]
PinnedRounding = Literal["exact", "power-of-two"]
EXIT_PAUSE_S = 0.05
"""After a backward, autograd's device thread still wants the interpreter's lock once, to drop the finished graph. A
process that ends within the 5 ms in which Python would give it away aborts, on any accelerator; the pause gives it away
before that."""
SAVING_PRIORITY = 5
"""Asked before PyTorch's own, the first of which has 10."""
ITEM_VALUE = 1.0
"""What a program reads of any tensor that has a shape only, unless told otherwise: a loss that is a number, no zero."""


class Touch(NamedTuple):
    """One access of a race: an operation of a stream that read or wrote bytes of a block."""

    op: str
    write: bool
    stream: int
    number: int
    begin: int
    end: int
    label: str


class Race(NamedTuple):
    """Two accesses to common bytes, at least one of them a write, that no wait orders."""

    first: Touch
    second: Touch
    block: str
    sentence: str


class TraceRecord(NamedTuple):
    """A kernel or copy on the virtual clock; `kind` is its operator class, `to device` or `to host`."""

    stream: int
    op: str
    label: str
    kind: str
    start_ns: int
    end_ns: int
    bytes: int

    @property
    def name(self) -> str:
        """The operator, after the label that the program gave, if any."""
        return f"{self.label}: {self.op}" if self.label else self.op


@dataclass(frozen=True)
class Counters:
    """What happened since the last reset; `fallbacks` are operators that ran through CPU kernels.

    `event_queries` are the allocator's looks at events of recorded streams.
    """

    kernels: int
    fallbacks: int
    bytes_to_device: int
    bytes_to_host: int
    event_queries: int
    pinned_bytes: int
    pinned_peak_bytes: int


class SimDevice:
    """The process's simulated accelerator, as `use_sim` last set it up."""

    def __init__(
        self, native: ModuleType, hardware: Hardware, allocator: caching.CachingAllocator | None = None
    ) -> None:
        self._native = native
        self.hardware = hardware
        self.allocator = allocator
        self.device = torch.device("sim", 0)

    @property
    def capacity_bytes(self) -> int:
        """The device's memory."""
        return int(self._native.capacity())

    @property
    def shapes_only(self) -> bool:
        """Whether tensors have shapes and no bytes (`use_sim(shapes_only=True)`)."""
        return bool(self._native.shapes_only())

    def set_item_value(self, value: float) -> None:
        """With shapes only: what `item()` and copies to the host give from now on, until `use_sim` sets 1 again.

        A program that skips its step where a flag is not 0, as `GradScaler` does, wants 0. Raises `InvalidInput` for
        what is no finite number below 2**63 (integers are cut towards 0), and where tensors have bytes.
        """
        require_finite("item_value", value, END_OF_INT64, "choose a finite one within ±2**63")
        if not self.shapes_only:
            raise InvalidInput(
                "tensors of device sim have bytes, and item() reads them: set shapes_only in use_sim first"
            )
        self._native.set_shape_mode(True, value)

    def unmeasured_temporaries(self) -> dict[str, int]:
        """With shapes only: kernels whose temporaries the table does not know, and how often they ran since the reset.

        Each counts as taking none, so that a peak within one of them may be too low.
        """
        return dict(self._native.unmeasured_temporaries())

    def estimated_temporaries(self) -> dict[str, int]:
        """With shapes only: kernels for which the table has no exact rule, and how often they ran in other sizes.

        They are taken to need a share of a tensor's size, or what was measured of the nearest sizes.
        """
        return dict(self._native.estimated_temporaries())

    def doubtful_temporaries(self) -> Counter[str]:
        """Both of these by operator."""
        found = Counter[str]()
        for calls in (self.unmeasured_temporaries(), self.estimated_temporaries()):
            for signature, count in calls.items():
                found[signature.split(":", 1)[0]] += count
        return found

    def now_ns(self) -> int:
        """The virtual time at which the compute (default) stream has done its queued work."""
        return int(self._native.stream_ns(0))

    def stream_ns(self, stream: torch.Stream) -> int:
        """The virtual time at which a stream has done its queued work."""
        return int(self._native.stream_ns(stream.stream_id))

    def host_ns(self) -> int:
        """The host's virtual clock: it advances by launches and by waiting, not by the time that Python takes."""
        return int(self._native.host_ns())

    def synchronize(self) -> None:
        """Lets the host wait for every stream."""
        torch.accelerator.synchronize()

    def races(self) -> list[Race]:
        """The races found since the last reset, in the order of their second access."""
        return [Race(Touch(*first), Touch(*second), *told) for first, second, *told in self._native.races()]

    def set_capacity(self, capacity_bytes: int) -> None:
        """Sets the device's memory; raises `InvalidInput` where more is in use."""
        self.require_capacity(capacity_bytes)
        self._native.set_capacity(capacity_bytes)

    def require_capacity(self, capacity_bytes: int) -> None:
        """Raise `InvalidInput` unless the device's memory may have so many bytes now."""
        require_integer("capacity_bytes", capacity_bytes, 0, MOST_BYTES, "give the device's bytes")
        in_use = self._native.bytes_in_use()
        if capacity_bytes < in_use:
            raise InvalidInput(
                f"capacity_bytes of {capacity_bytes} is below the {in_use} bytes in use on device sim: "
                "free tensors first or ask for more"
            )

    def reset(self) -> None:
        """Waits for everything, then zeroes clocks, counters, races, trace and memory statistics; tensors stay."""
        self._native.reset()

    def counters(self) -> Counters:
        """What happened since the last reset."""
        return Counters(**self._native.counters())

    def reuse_intervals(self) -> list[int]:
        """Kernels launched between giving a block away and its bytes' return to the pool, since the last reset.

        One number for each freed block that the swap engine took from the program (counted from the hand-over) or that
        `record_stream` named (from its first call). SmartSwap §6.4 calls it the memory block reuse interval.
        """
        return [int(kernels) for kernels in self._native.reuse_intervals()]

    def stitches(self) -> caching.Stitches:
        """What `CachingAllocator(stitching=True)` did since the last reset."""
        return caching.Stitches(*self._native.stitches())

    def record_memory(self, most: int = 100_000) -> None:
        """Keeps the allocator's last `most` steps for snapshots, from none on; 0 keeps none, as at first."""
        self._require_segments()
        require_integer("most", most, 0, MOST_BYTES, "give the number of steps to keep")
        self._native.record_memory(most)

    def snapshot(self) -> dict[str, Any]:
        """The segments now, and the steps recorded, as `torch.cuda.memory._snapshot()` gives them; modelled."""
        self._require_segments()
        return caching.snapshot(self._native)

    def dump_snapshot(self, path: Path | str) -> None:
        """Writes the snapshot to a file for PyTorch's memory viewer, pytorch.org/memory_viz."""
        self._require_segments()
        caching.dump(self._native, path)

    def _require_segments(self) -> None:
        if not self._native.caching():
            raise InvalidInput("mode exact has no segments to show: call use_sim(allocator='caching') first")

    def set_tracing(self, on: bool) -> None:
        """Whether every kernel and copy leaves a record; off at first."""
        self._native.set_tracing(on)

    def trace(self) -> list[TraceRecord]:
        """The records since the last reset, in the order of issue."""
        return [TraceRecord(*record) for record in self._native.trace()]

    @contextmanager
    def label(self, text: str) -> Iterator[None]:
        """Names what this thread does inside, in races and traces."""
        before = self._native.exchange_label(text)
        try:
            yield
        finally:
            self._native.exchange_label(before)

    def close(self) -> None:
        """Waits for everything and returns free memory to the system; the device type stays registered."""
        torch.accelerator.synchronize()
        torch.accelerator.empty_cache()

    def __enter__(self) -> "SimDevice":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@cache
def registered_native() -> ModuleType:
    """The extension, its device registered with PyTorch."""
    native = load("runtime._sim")
    holder = torch._C._get_privateuse1_backend_name()
    if holder not in ("privateuseone", "sim"):
        raise InvalidInput(
            f"device sim needs PyTorch's slot for foreign accelerators, which {holder!r} holds in this process: "
            "start a process that does not load it (TORCH_DEVICE_BACKEND_AUTOLOAD=0)"
        )
    if holder == "privateuseone":
        rename_privateuse1_backend("sim")
        native.register_device([(op, list(arguments), when) for op, (arguments, when) in UNDECLARED_WRITES.items()])
        torch._register_device_module("sim", torch_sim.build())  # type: ignore[no-untyped-call]
        keep_parameters_of_moved_modules()
        _number_nodes_after_backward(native)
        generate_methods_for_privateuse1_backend(for_tensor=True, for_module=True, for_storage=True)
        _refuse_saving_shapes(native)
    _tell_engines(native)
    atexit.register(time.sleep, EXIT_PAUSE_S)
    return native


def _refuse_saving_shapes(native: ModuleType) -> None:
    """Let `torch.save` refuse a tensor that has a shape only: what it would write are no numbers of the program's."""

    def tag(storage: Any) -> None:
        if storage.device.type == "sim" and native.shapes_only():
            raise InvalidInput(
                f"torch.save was asked for a storage of {storage.nbytes()} bytes of device sim, which works on shapes "
                "only and has no numbers (use_sim(shapes_only=True)): leave the saving out, or leave shapes_only out"
            )

    torch.serialization.register_package(SAVING_PRIORITY, tag, lambda storage, location: None)


def _number_nodes_after_backward(native: ModuleType) -> None:
    """Lets the thread that called a backward pass number its next autograd node after those of the device's thread.

    Else the first operator on second derivatives would come too late in the next backward pass, except where somebody
    observes operators, as the executor does: the executed step would not be the profiled one.
    """
    plain = torch.autograd.graph._engine_run_backward

    @wraps(plain)
    def run(*arguments: Any, **options: Any) -> tuple[Tensor, ...]:
        try:
            return plain(*arguments, **options)
        finally:
            native.follow_sequence()

    torch.autograd.graph._engine_run_backward = torch.autograd._engine_run_backward = run  # type: ignore[attr-defined]


def _tell_engines(native: ModuleType) -> None:
    """Lets the race check know which blocks the swap engine takes away, and the profiler what launching costs.

    And lets the swap engine page-lock memory of its own.
    """
    if why_missing("runtime._C") is None:
        load("runtime._C").set_handover_observer(native.handover_observer)
        load("runtime._C").set_launch_meter(native.launch_meter)
        load("runtime._C").set_host_registrar(native.host_registrar)
