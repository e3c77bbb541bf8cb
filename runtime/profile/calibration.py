"""Measures a device and its link to the host, and writes them down as a hardware file."""

import os
from collections.abc import Callable

import torch

from runtime.profile import kernels
from runtime.profile.clocks import CallClock, clock_of
from runtime.profile.links import measure_links
from runtime.profile.place import place_of
from solvers.ir.hardware import Device, Hardware, Link

DTYPES = ("float32", "bfloat16", "float16", "float64")
MATRIX_SIZES = (128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
VECTOR_SIZES = tuple(1 << exponent for exponent in range(20, 29))
ROW_COUNTS = tuple(1 << exponent for exponent in range(10, 19))
IMAGE_SIZES = (16, 24, 32, 48, 64, 96, 128, 192, 256)
LAUNCHES = 200


def calibrate(device: torch.device | str, *, name: str | None = None) -> Hardware:
    """The device's hardware file: arithmetic by dtype, memory, launch overhead, efficiencies, and its link to the host.

    Rates are what large kernels reach, in one process on an otherwise idle machine; no kernel tells a peak from its
    efficiency, so `bytes_per_s` is the best memory rate of any kernel, each class's efficiency is its own rate over
    that, and `flops_per_s` is scaled so that rate times efficiency is what matrix products reached. `other` is the
    least of the classes whose time is memory traffic. A CPU has no link: its memory is the host's.
    """
    place = place_of(device)
    clock = clock_of(place)
    label = name or place.type
    with torch.no_grad():
        launch_us = clock.per_call_s(_launch(place), LAUNCHES) * 1e6
        described = _device(place, clock, label, launch_us)
        links: tuple[Link, ...] = () if place.type == "cpu" else measure_links(place, label)
    return Hardware(name=label, devices=(described,), links=links, source=_source(place))


def _launch(device: torch.device) -> Callable[[], object]:
    """The smallest kernel: what it takes is what launching takes."""
    value = torch.zeros(1, device=device)
    return lambda: value.add_(1)


def _device(device: torch.device, clock: CallClock, name: str, launch_us: float) -> Device:
    memory = {
        "matmul": kernels.rate_per_s(kernels.matrix_vector(device), clock, ROW_COUNTS),
        "elementwise": kernels.rate_per_s(kernels.elementwise(device), clock, VECTOR_SIZES),
        "reduction": kernels.rate_per_s(kernels.reduction(device), clock, VECTOR_SIZES),
        "copy": kernels.rate_per_s(kernels.copy(device), clock, VECTOR_SIZES),
    }
    products = {dtype: rate for dtype in DTYPES if (rate := _product_rate(device, clock, dtype)) is not None}
    best = max(memory.values())
    efficiency = {op_class: rate / best for op_class, rate in memory.items()}
    peaks = {dtype: round(rate / efficiency["matmul"]) for dtype, rate in products.items()}
    for op_class, build, sizes in (
        ("attention", kernels.attention(device), MATRIX_SIZES),
        ("convolution", kernels.convolution(device), IMAGE_SIZES),
    ):
        efficiency[op_class] = min(kernels.rate_per_s(build, clock, sizes) / peaks["float32"], 1.0)
    efficiency["other"] = min(memory.values()) / best
    return Device(
        name=name,
        memory_bytes=_memory_bytes(device),
        flops_per_s=peaks,
        bytes_per_s=best,
        launch_us=round(launch_us, 3),
        efficiency=efficiency,
    )


def _product_rate(device: torch.device, clock: CallClock, dtype: str) -> int | None:
    """Operations per second of matrix products, or None where the device has none of that type."""
    try:
        return kernels.rate_per_s(kernels.matmul(device, getattr(torch, dtype)), clock, MATRIX_SIZES)
    except (RuntimeError, TypeError):
        return None


def _memory_bytes(device: torch.device) -> int:
    if device.type == "cpu":
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return torch.accelerator.get_memory_info(device)[1]


def _source(device: torch.device) -> str:
    if device.type == "cpu":
        return (
            f"measured on cpu with torch {torch.__version__}, {torch.get_num_threads()} threads, host clock, least of "
            "three runs; no links: a CPU's memory is the host's"
        )
    model = getattr(torch.get_device_module(device), "get_device_name", lambda _: "simulated")(device)
    return (
        f"measured on {device} ({model}) with torch {torch.__version__}: slopes between runs of kernels, events on the "
        "current stream; transfers from and to pinned memory"
    )
