"""The simulated accelerator's Python face: set-up, virtual clocks, races, traces and counters."""

import atexit
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, wraps
from types import ModuleType, TracebackType
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils.backend_registration import generate_methods_for_privateuse1_backend, rename_privateuse1_backend

from runtime.device import torch_sim
from runtime.device.native import load, why_missing
from runtime.device.sim_modules import keep_parameters_of_moved_modules
from runtime.device.undeclared_writes import UNDECLARED_WRITES
from solvers.ir.errors import InvalidInput
from solvers.ir.hardware import HOST, Hardware

RaceMode = Literal["raise", "record", "off"]
EXIT_PAUSE_S = 0.05
"""After a backward, autograd's device thread still wants the interpreter's lock once, to drop the finished graph. A
process that ends within the 5 ms in which Python would give it away aborts, on any accelerator; the pause gives it away
before that."""
OP_CLASSES = ("matmul", "attention", "convolution", "elementwise", "reduction", "copy", "other")


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

    def __init__(self, native: ModuleType, hardware: Hardware) -> None:
        self._native = native
        self.hardware = hardware
        self.device = torch.device("sim", 0)

    @property
    def capacity_bytes(self) -> int:
        """The device's memory."""
        return int(self._native.capacity())

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
        in_use = self._native.bytes_in_use()
        if capacity_bytes < in_use:
            raise InvalidInput(
                f"capacity_bytes of {capacity_bytes} is below the {in_use} bytes in use on device sim: "
                "free tensors first or ask for more"
            )
        self._native.set_capacity(capacity_bytes)

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


def plain_numbers(hardware: Hardware, noise: float, seed: int, event_query_ns: int = 0) -> dict[str, Any]:
    """The hardware as the plain numbers that the extension takes."""
    if not 0 <= noise < 1:
        raise InvalidInput(f"noise of {noise} is outside [0, 1): it is a fraction of each kernel's time")
    if not 0 <= seed < 1 << 64:
        raise InvalidInput(f"seed of {seed} is outside [0, 2**64): choose a smaller one")
    if event_query_ns < 0:
        raise InvalidInput(f"event_query_ns of {event_query_ns} is negative: a look at an event takes time or none")
    device = hardware.device()
    for dtype in device.flops_per_s:
        if not isinstance(getattr(torch, dtype, None), torch.dtype):
            raise InvalidInput(f"hardware {hardware.name!r} gives flops_per_s for {dtype!r}, which is no torch dtype")
    ways = [hardware.link(HOST, device.name), hardware.link(device.name, HOST)]
    return {
        "flops_per_s": dict(device.flops_per_s),
        "bytes_per_s": device.bytes_per_s,
        "launch_ns": math.ceil(device.launch_us * 1000),
        "efficiency": {op_class: device.reached(op_class) for op_class in OP_CLASSES},
        "links": [(way.bytes_per_s, math.ceil(way.latency_us * 1000)) for way in ways],
        "half_duplex": ways[0] is ways[1] and ways[0].duplex == "half",
        "noise": noise,
        "seed": seed,
        "event_query_ns": event_query_ns,
    }


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
    _tell_engines(native)
    atexit.register(time.sleep, EXIT_PAUSE_S)
    return native


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
    """Lets the race check know which blocks the swap engine takes away, and the profiler what launching costs."""
    if why_missing("runtime._C") is None:
        load("runtime._C").set_handover_observer(native.handover_observer)
        load("runtime._C").set_launch_meter(native.launch_meter)
