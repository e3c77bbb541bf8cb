"""Sets up the simulated accelerator."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypedDict, Unpack

import torch

from runtime.device.arguments import MOST_BYTES, require_integer, require_share
from runtime.device.caching import CachingAllocator, options_of, plain_rules
from runtime.device.links import Lanes, modelled
from runtime.device.settling import settled
from runtime.device.simulated import ITEM_VALUE, PinnedRounding, RaceMode, SimDevice, empty_caches, registered_native
from runtime.device.temporaries import shipped_rules
from runtime.device.view import DeviceView
from solvers.ir.codec import read_document
from solvers.ir.errors import InvalidInput
from solvers.ir.hardware import HOST, TF32, Device, Hardware, Link
from solvers.timeline.collectives import collective_lanes

DEFAULT_HARDWARE = Hardware(
    name="sim-default",
    source="round numbers, no real device",
    devices=(
        Device(
            name="0",
            memory_bytes=4 << 30,
            flops_per_s={"float32": 10_000_000_000_000, "bfloat16": 40_000_000_000_000},
            bytes_per_s=500_000_000_000,
            launch_us=5.0,
            efficiency={"matmul": 0.6, "other": 0.8},
        ),
    ),
    links=(Link(a="0", b=HOST, bytes_per_s=16_000_000_000, latency_us=10.0),),
)
"""What `use_sim` models where nothing is said."""


OP_CLASSES = ("matmul", "attention", "convolution", "elementwise", "reduction", "copy", "other")
MOST_QUERY_NS = 10**12
MOST_DEVICES = 64
CURRENT: list[SimDevice] = []
"""The process's simulated accelerator, once there is one."""


class SimOptions(TypedDict, total=False):
    """What can be asked of the simulated accelerator; `use_sim` says what each means."""

    devices: int
    capacity_bytes: int | list[int] | tuple[int, ...] | None
    noise: float
    seed: int
    races: RaceMode
    event_query_ns: int
    allocator: Literal["exact", "caching"] | CachingAllocator
    pinned_rounding: PinnedRounding
    shapes_only: bool


def use_sim(hardware: Hardware | Path | str | None = None, **options: Unpack[SimOptions]) -> SimDevice:
    """Sets up the simulated accelerator: registers it at the first call, reconfigures and resets it later.

    `hardware` is a `bayplan-hardware/1` value or file. `devices` (1) says how many there are, from `sim:0` on: the
    first that the file states, or, where it states one, all like that one. Each has streams, clocks, a host, memory,
    noise, random numbers and links of its own; links that share a rate (`shares`) carry one transfer at a time. Copies
    between devices take the file's link between them, or, where there is none, both links with the host, one after the
    other. `capacity_bytes` replaces the memory, of all devices, or of each by a list.

    `noise` (0) multiplies every kernel's time by a uniform factor of [1 − noise, 1 + noise], drawn with `seed` (0);
    `races` says what to do with one: "raise" at once, "record", or "off"; `event_query_ns` (0) is what the allocator's
    look at one event of a recorded stream costs the host, at every request while there is one. `allocator` is "exact"
    (what fits by bytes fits), "caching" (segments, by PyTorch's rules for CUDA), or the latter with options, a
    `CachingAllocator`; memory that is free is given back, and what is in use keeps its bytes. `pinned_rounding` says
    what PyTorch's allocator of page-locked memory hands out: "exact" bytes, given back at once, or blocks of a
    "power-of-two", kept for later requests, as it does on CUDA.

    `shapes_only` (False): tensors have addresses and sizes, and no byte of them is read, written or copied; operators,
    time, memory and order are what they are with bytes (csrc/README.md, "Shapes without bytes"). Every number that the
    program reads of a tensor is then 1, or what `SimDevice.set_item_value` says.

    Raises:
        InvalidInput: the extension is missing or torch is not 2.13, another backend has PyTorch's slot, more memory is
            in use than the capacity, tensors of the other mode or of a device that there will not be are alive, the
            file states fewer devices, or a number makes no sense.
    """
    for name in options:
        if name not in SimOptions.__annotations__:
            raise TypeError(f"use_sim() got an unexpected keyword argument {name!r}")
    return _set_up(hardware, DEFAULTS | options)


DEFAULTS = SimOptions(
    devices=1,
    capacity_bytes=None,
    noise=0.0,
    seed=0,
    races="raise",
    event_query_ns=0,
    allocator="exact",
    pinned_rounding="exact",
    shapes_only=False,
)


def _require_place(hardware: Path | str) -> None:
    """Refuse a bare name that is no file: shipped hardware has names on command lines, and paths here."""
    if not Path(hardware).exists() and Path(hardware).name == str(hardware) and not Path(hardware).suffix:
        raise InvalidInput(
            f"hardware is {str(hardware)!r}, and there is no such file: give a bayplan-hardware/1 file by its path; a "
            f"name in conf/hardware is read by read_hardware({str(hardware)!r}) of experiments.hardware"
        )


def _set_up(hardware: Hardware | Path | str | None, options: SimOptions) -> SimDevice:
    if isinstance(hardware, str | Path):
        _require_place(hardware)
        hardware = read_document(Path(hardware), Hardware)
    hardware = hardware or DEFAULT_HARDWARE
    races, rounding, shapes_only = options["races"], options["pinned_rounding"], options["shapes_only"]
    require_integer("devices", options["devices"], 1, MOST_DEVICES + 1, "ask for 1 to 64")
    numbers, lanes = _plain_machine(hardware, options)
    if races not in ("raise", "record", "off"):
        raise InvalidInput(f"races={races!r} is unknown: choose of 'raise', 'record', 'off'")
    segments = options_of(options["allocator"])
    if rounding not in ("exact", "power-of-two"):
        raise InvalidInput(f"pinned_rounding={rounding!r} is unknown: choose of 'exact', 'power-of-two'")
    if not isinstance(shapes_only, bool):
        raise InvalidInput(f"shapes_only={shapes_only!r} is unknown: choose of True, False")
    native = registered_native()
    _require_one_mode(native, shapes_only)
    capacities = _capacities(native, hardware, options)  # From here on nothing is refused: a refusal leaves all as is.
    native.set_devices(options["devices"])
    native.set_allocator(plain_rules(segments))
    native.reset()
    for index, capacity in enumerate(capacities):
        native.record_memory(0, index)
        native.set_capacity(capacity, index)
    native.configure(numbers, lanes.joins_devices())
    native.set_races(races)
    native.set_pinned_rounding(rounding == "power-of-two")
    if shapes_only:
        native.set_temporaries(shipped_rules())
    native.set_shape_mode(shapes_only, ITEM_VALUE)
    CURRENT.clear()
    CURRENT.append(SimDevice(native, hardware, segments, lanes))
    return CURRENT[-1]


def _capacities(native: ModuleType, hardware: Hardware, options: SimOptions) -> list[int]:
    """The memory of each device; raises `InvalidInput` where one holds more, or holds any and will not be there."""
    count, told = options["devices"], options["capacity_bytes"]
    if told is None:
        capacities = [device.memory_bytes for device in modelled(hardware, count)]
    else:
        capacities = list(told) if isinstance(told, list | tuple) else [told] * count
    if len(capacities) != count:
        raise InvalidInput(f"capacity_bytes gives {len(capacities)} devices' memory, not {count}: give each its own")
    there = native.device_count()
    for index, capacity in enumerate(capacities[:there]):
        DeviceView(native, index).require_capacity(capacity)
    for capacity in capacities[there:]:
        require_integer("capacity_bytes", capacity, 0, MOST_BYTES, "give the device's bytes")
    for index in range(count, there):
        in_use = _settled(there, partial(native.bytes_in_use, index))
        if in_use:
            raise InvalidInput(
                f"device sim:{index} holds {in_use} bytes of tensors, so use_sim cannot leave {count} devices: free "
                f"them first, or ask for {index + 1} or more"
            )
    return capacities


def _require_one_mode(native: ModuleType, shapes_only: bool) -> None:
    """Refuse to change between bytes and shapes only while tensors are alive: nobody could tell which are which."""
    if native.shapes_only() == shapes_only:
        return
    devices = native.device_count()

    def held() -> int:
        return sum(native.bytes_in_use(index) for index in range(devices))

    in_use = _settled(devices, held)
    if in_use:
        here, there = ("shapes only", "real bytes") if native.shapes_only() else ("real bytes", "shapes only")
        raise InvalidInput(
            f"device sim holds {in_use} bytes of tensors with {here}, so use_sim cannot change to {there}: free them "
            f"first (del model, optimizer), or start another process"
        )


def _settled(devices: int, held: Callable[[], int]) -> int:
    """The bytes that tensors hold; neither garbage nor what waits for a recorded stream, of which nobody would ask."""
    if held():
        settled(held)
        empty_caches(devices)
    return held()


def _plain_machine(hardware: Hardware, options: SimOptions) -> tuple[list[dict[str, Any]], Lanes]:
    """The devices as the plain numbers that the extension takes, and the lanes of their links."""
    devices = modelled(hardware, options["devices"])
    lanes = Lanes(hardware, devices)
    numbers = [
        plain_numbers(hardware, options["noise"], options["seed"], options["event_query_ns"], device)
        | {"links": lanes.to_host(index), "peers": lanes.to_peers(index)}
        for index, device in enumerate(devices)
    ]
    if len({device.name for device in devices}) == len(devices):
        lanes.numbers(collective_lanes(hardware, [device.name for device in devices]))
    return numbers, lanes


def plain_numbers(
    hardware: Hardware, noise: float, seed: int, event_query_ns: int = 0, device: Device | None = None
) -> dict[str, Any]:
    """A device (the first) of the hardware as the plain numbers that the extension takes, but for its links."""
    require_share("noise", noise, "it is a fraction of each kernel's time")
    require_integer("seed", seed, 0, 1 << 64, "choose another")
    require_integer("event_query_ns", event_query_ns, 0, MOST_QUERY_NS, "a look at an event takes time or none")
    device = device or hardware.device()
    rates = {dtype: rate for dtype, rate in device.flops_per_s.items() if dtype != TF32}
    for dtype in rates:
        if not isinstance(getattr(torch, dtype, None), torch.dtype):
            raise InvalidInput(f"hardware {hardware.name!r} gives flops_per_s for {dtype!r}, which is no torch dtype")
    return {
        "flops_per_s": rates,
        "bytes_per_s": device.bytes_per_s,
        "launch_ns": math.ceil(device.launch_us * 1000),
        "efficiency": {op_class: device.reached(op_class) for op_class in OP_CLASSES},
        "noise": noise,
        "seed": seed,
        "event_query_ns": event_query_ns,
    }
