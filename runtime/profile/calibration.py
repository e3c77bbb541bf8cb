"""Measures a device and its link to the host, and writes them down as a hardware file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from runtime.profile import kernels
from runtime.profile.clocks import CallClock, clock_of, settled_s
from runtime.profile.costs import event_costs, launch_us
from runtime.profile.links import measure_both_ways
from runtime.profile.place import place_of
from solvers.ir.hardware import TF32, Device, Hardware, Link

DTYPES = ("float32", "bfloat16", "float16", "float64")
MATRIX_SIZES = (128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
VECTOR_SIZES = tuple(1 << exponent for exponent in range(20, 29))
ROW_COUNTS = tuple(1 << exponent for exponent in range(10, 19))
IMAGE_SIZES = (16, 24, 32, 48, 64, 96, 128, 192, 256)
WARM_S = 0.5
"""Seconds of matrix products before anything on a real accelerator counts: its clocks rise from idle."""
WARMED_BY = 2048
"""Rows of the matrices that warm it."""


def calibrate(device: torch.device | str, *, name: str | None = None) -> Hardware:
    """The device's hardware file: arithmetic by dtype, memory, launch overhead, efficiencies, and its link to the host.

    Rates are what large kernels reach on random numbers with warmed clocks, in one process on an otherwise idle
    machine; no kernel tells a peak from its efficiency, so `bytes_per_s` is the best memory rate of any kernel, each
    class's efficiency is its own rate over that, and `flops_per_s` is scaled so that rate times efficiency is what
    matrix products reached. Attention and convolution are measured in bfloat16 on CUDA, as they are trained there, else
    in float32, and told as a share of that type's rate. `other` is the least of the classes whose time is memory
    traffic. A CPU has no link: its memory is the host's.
    """
    place = place_of(device)
    clock = clock_of(place)
    label = name or place.type
    with torch.no_grad(), _float32("highest"):
        _warm(place, clock)
        described = _device(place, clock, label, launch_us(place, clock))
        links: tuple[Link, ...] = ()
        said = _about(place)
        if place.type != "cpu":
            links, slowdown = measure_both_ways(place, label)
            said += f"; {slowdown:.2f} times as long with copies the other way at once; {_events(place)}"
    return Hardware(name=label, devices=(described,), links=links, source=said)


def _warm(device: torch.device, clock: CallClock) -> None:
    """Let a real accelerator's clocks rise until two timings in a row agree."""
    if device.type in ("cpu", "sim"):
        return
    work = kernels.matmul(device, torch.float32)(WARMED_BY)
    settled_s(clock, work.call, kernels.MOST_REPEATS, least_s=WARM_S)


@contextmanager
def _float32(precision: str) -> Iterator[None]:
    """How exact products of float32 are inside: `highest` float32, `high` TensorFloat-32 where the device has it."""
    before, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn
    torch.set_float32_matmul_precision(precision)
    as_before = {name: getattr(cudnn, name) for name in ("enabled", "benchmark", "deterministic")}
    try:
        with cudnn.flags(**as_before, allow_tf32=precision != "highest"):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def _device(device: torch.device, clock: CallClock, name: str, launch: float) -> Device:
    memory = {
        "matmul": kernels.rate_per_s(kernels.matrix_vector(device), clock, ROW_COUNTS),
        "elementwise": kernels.rate_per_s(kernels.elementwise(device), clock, VECTOR_SIZES),
        "reduction": kernels.rate_per_s(kernels.reduction(device), clock, VECTOR_SIZES),
        "copy": kernels.rate_per_s(kernels.copy(device), clock, VECTOR_SIZES),
    }
    best = max(memory.values())
    efficiency = {op_class: rate / best for op_class, rate in memory.items()}
    peaks = {dtype: round(rate / efficiency["matmul"]) for dtype, rate in _products(device, clock).items()}
    dtype = _trained_in(device)
    for op_class, build, sizes in (
        ("attention", kernels.attention(device, getattr(torch, dtype)), MATRIX_SIZES),
        ("convolution", kernels.convolution(device, getattr(torch, dtype)), IMAGE_SIZES),
    ):
        efficiency[op_class] = min(kernels.rate_per_s(build, clock, sizes) / peaks[dtype], 1.0)
    efficiency["other"] = min(memory.values()) / best
    return Device(
        name=name,
        memory_bytes=_memory_bytes(device),
        flops_per_s=peaks,
        bytes_per_s=best,
        launch_us=round(launch, 3),
        efficiency=efficiency,
    )


def _products(device: torch.device, clock: CallClock) -> dict[str, int]:
    """Operations per second of matrix products by dtype, and of TensorFloat-32 ones where the device has them."""
    found = {dtype: rate for dtype in DTYPES if (rate := _product_rate(device, clock, dtype)) is not None}
    if device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0):
        with _float32("high"):
            rate = _product_rate(device, clock, "float32")
        if rate is not None:
            found[TF32] = rate
    return found


def _product_rate(device: torch.device, clock: CallClock, dtype: str) -> int | None:
    """Operations per second of matrix products, or None where the device has none of that type."""
    try:
        return kernels.rate_per_s(kernels.matmul(device, getattr(torch, dtype)), clock, MATRIX_SIZES)
    except (RuntimeError, TypeError):
        return None


def _trained_in(device: torch.device) -> str:
    return "bfloat16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"


def _memory_bytes(device: torch.device) -> int:
    if device.type == "cpu":
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return torch.accelerator.get_memory_info(device)[1]


def _about(device: torch.device) -> str:
    kernels_on = f"attention and convolution in {_trained_in(device)}, random numbers"
    if device.type == "cpu":
        return (
            f"measured on cpu with torch {torch.__version__}, {torch.get_num_threads()} threads, host clock, least of "
            f"three runs; {kernels_on}; no links: a CPU's memory is the host's"
        )
    model = getattr(torch.get_device_module(device), "get_device_name", lambda _: "simulated")(device)
    return (
        f"measured on {device} ({model}) with torch {torch.__version__}: slopes between runs of kernels, events on the "
        f"current stream; {kernels_on}; transfers from and to pinned memory"
    )


def _events(device: torch.device) -> str:
    costs = event_costs(device)
    return (
        f"of the host an event takes {costs.record_us:.2f} µs to record, {costs.timed_us:.2f} with timing, "
        f"{costs.new_us:.2f} to make and record"
    )
