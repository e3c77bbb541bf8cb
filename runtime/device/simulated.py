"""The simulated accelerator's Python face: set-up, virtual clocks, races, traces and counters."""

import atexit
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from types import ModuleType, TracebackType
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.backend_registration import generate_methods_for_privateuse1_backend, rename_privateuse1_backend

from runtime.device import caching, torch_sim
from runtime.device.arguments import END_OF_INT64, require_finite, require_integer
from runtime.device.links import Lanes
from runtime.device.native import load, why_missing
from runtime.device.records import Counters, Race, Touch, TraceRecord
from runtime.device.sim_modules import keep_parameters_of_moved_modules
from runtime.device.undeclared_writes import UNDECLARED_WRITES
from runtime.device.view import DeviceView
from solvers.ir.errors import InvalidInput
from solvers.ir.hardware import Hardware
from solvers.timeline.collectives import Lane

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


class SimDevice(DeviceView):
    """The process's simulated accelerator, as `use_sim` last set it up: its first device, and what all share."""

    def __init__(
        self,
        native: ModuleType,
        hardware: Hardware,
        allocator: caching.CachingAllocator | None = None,
        lanes: Lanes | None = None,
    ) -> None:
        super().__init__(native, 0)
        self._lanes = lanes
        self.hardware = hardware
        self.allocator = allocator

    @property
    def devices(self) -> int:
        """How many devices there are (`use_sim(devices=n)`)."""
        return int(self._native.device_count())

    def at(self, index: int) -> DeviceView:
        """Device `sim:index`; raises `InvalidInput` where there is none."""
        require_integer("index", index, 0, self.devices, "use_sim(devices=n) gives devices 0 to n − 1")
        return DeviceView(self._native, index)

    def reserve_links(self, lanes: Iterable[Lane], earliest_ns: int, duration_ns: int) -> int:
        """The start of a group's operation: the first gap that long in which no copy and no other operation has a link.

        The links are then in use until its end. The devices' names in the hardware file must be different ones.
        """
        assert self._lanes is not None, "only use_sim knows the lanes"
        return int(self._native.reserve_links(self._lanes.numbers(lanes), earliest_ns, duration_ns))

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

    def synchronize(self) -> None:
        """Lets the host wait for every stream of every device."""
        for index in range(self.devices):
            self._native.synchronize(index)

    def races(self) -> list[Race]:
        """The races found since the last reset, in the order of their second access."""
        return [Race(Touch(*first), Touch(*second), *told) for first, second, *told in self._native.races()]

    def reset(self) -> None:
        """Waits for everything, then zeroes clocks, counters, races, trace and memory statistics; tensors stay."""
        self._native.reset()

    def counters(self) -> Counters:
        """What happened since the last reset on all devices together."""
        each = [self._native.counters(index) for index in range(self.devices)]
        summed = {name: sum(one[name] for one in each) for name in each[0]}
        return Counters(**summed | {name: each[0][name] for name in ("pinned_bytes", "pinned_peak_bytes")})

    def set_tracing(self, on: bool) -> None:
        """Whether every kernel and copy leaves a record; off at first."""
        self._native.set_tracing(on)

    def trace(self) -> list[TraceRecord]:
        """The records since the last reset, device by device, in the order of issue."""
        return [TraceRecord(*record) for record in self._native.trace()]

    @contextmanager
    def label(self, text: str) -> Iterator[None]:
        """Names what this thread does inside, in races and traces."""
        before = self._native.exchange_label(text)
        try:
            yield
        finally:
            self._native.exchange_label(before)

    @contextmanager
    def checking_host(self) -> Iterator[None]:
        """Checks every operator on tensors of the host alone as the host's own accesses to page-locked memory.

        As if `host_access` stood before each, on all threads; copies from and to devices are these devices' anyway. A
        race is raised, in mode raise, at the next operator on the device or wait for it, and at the end of the context
        at the latest. What passes PyTorch's dispatcher (`numpy()`, `data_ptr()`, `tolist()`) is not seen.
        """
        self._native.watch_host(True)
        try:
            yield
        finally:
            self._native.watch_host(False)
        for index in range(self.devices):
            self._native.raise_races(index)

    def close(self) -> None:
        """Waits for everything and returns free memory to the system; the device type stays registered."""
        self.synchronize()
        empty_caches(self.devices)

    def __enter__(self) -> "SimDevice":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def empty_caches(devices: int) -> None:
    """Gives all devices' free memory back to the system; `torch.accelerator.empty_cache` does the current one's."""
    for index in range(devices):
        with torch.accelerator.device_index(index):
            torch.accelerator.empty_cache()


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
        torch._register_device_module("sim", torch_sim.build(native))  # type: ignore[no-untyped-call]
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
