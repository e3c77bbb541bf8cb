"""Kernels of a layer, each with one output, their roofline time, and how small ones are grouped (Lynx §6)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import Any

from solvers.ir.errors import InvalidProblem
from solvers.ir.hardware import Device
from solvers.workload.costs import BackwardOp, ForwardOp, LayerCosts

INPUT, GRADIENT = "layer input", "gradient from above"
"""What a kernel may read besides the outputs of other kernels."""
DTYPES = ("float16", "bfloat16", "float32")
"""Rates of a device in order of preference: training is in mixed precision."""


@dataclass(frozen=True)
class Kernel:
    """One kernel: what it reads (names of kernels, `INPUT` or `GRADIENT`), the bytes of its one output, and its work.

    `traffic` is bytes read and written. `comm_us` is the time of a collective, None for a computation. Kernels that
    stand together and share a `group` become one operator where small ones are grouped.
    """

    name: str
    reads: tuple[str, ...]
    output_bytes: int
    op_class: str = "elementwise"
    flops: int = 0
    traffic: int = 0
    comm_us: float | None = None
    group: str | None = None


Unit = tuple[Kernel, ...]
"""The kernels of one operator."""


def roofline_us(device: Device, op_class: str, flops: int, traffic: int) -> float:
    """The longer of arithmetic and memory traffic at the class's efficiency, and at least one launch."""
    reached = device.reached(op_class)
    arithmetic = flops * 1e6 / (_rate(device) * reached) if flops else 0.0
    return max(arithmetic, traffic * 1e6 / (device.bytes_per_s * reached), device.launch_us)


def _rate(device: Device) -> int:
    for dtype in DTYPES:
        if dtype in device.flops_per_s:
            return device.flops_per_s[dtype]
    raise InvalidProblem(f"device {device.name!r} gives no rate for any of {', '.join(DTYPES)}: add one to flops_per_s")


def assemble(
    name: str, input_bytes: int, passes: tuple[Sequence[Kernel], Sequence[Kernel]], device: Device, group_small: bool
) -> LayerCosts:
    """The layer of these forward and backward kernels; an op's output is what kernels outside its group read of it.

    Times are rounded cumulatively in each pass, so that rounding never adds up.
    """
    forward, backward = (_units(kernels, group_small) for kernels in passes)
    home, own = _homes(forward), _homes(backward)
    visible = _visible_bytes(forward, backward)
    ops = [
        ForwardOp(inputs=_sources(unit, home, number), output_bytes=visible[number], **_common(unit, time_us))
        for number, (unit, time_us) in enumerate(zip(forward, _rounded(forward, device), strict=True))
    ]
    steps = [
        BackwardOp(
            forward_inputs=_sources(unit, home),
            backward_inputs=_sources(unit, own, number),
            reads_gradient=GRADIENT in _reads(unit),
            output_bytes=visible[len(forward) + number],
            **_common(unit, time_us),
        )
        for number, (unit, time_us) in enumerate(zip(backward, _rounded(backward, device), strict=True))
    ]
    return LayerCosts(name=name, input_bytes=input_bytes, forward=tuple(ops), backward=tuple(steps))


def _units(kernels: Sequence[Kernel], group_small: bool) -> list[Unit]:
    """Runs of kernels that share a group, or every kernel for itself."""
    if not group_small:
        return [(kernel,) for kernel in kernels]
    runs = groupby(kernels, key=lambda kernel: kernel.group or kernel.name)
    return [tuple(run) for _, run in runs]


def _homes(units: list[Unit]) -> dict[str, int]:
    """The unit that each kernel belongs to."""
    return {kernel.name: number for number, unit in enumerate(units) for kernel in unit}


def _reads(unit: Unit) -> set[str]:
    return {read for kernel in unit for read in kernel.reads}


def _sources(unit: Unit, homes: dict[str, int], own: int | None = None) -> tuple[int, ...]:
    """The other units whose outputs this one reads."""
    return tuple(sorted({homes[read] for read in _reads(unit) if read in homes} - {own}))


def _visible_bytes(forward: list[Unit], backward: list[Unit]) -> list[int]:
    """For each unit, the bytes of those outputs that are read outside it or leave the layer at the end of a pass."""
    units = [*forward, *backward]
    readers: dict[str, set[int]] = {}
    for number, unit in enumerate(units):
        for read in _reads(unit):
            readers.setdefault(read, set()).add(number)
    last = {forward[-1][-1].name, backward[-1][-1].name}
    return [
        sum(k.output_bytes for k in unit if k.name in last or readers.get(k.name, set()) - {number})
        for number, unit in enumerate(units)
    ]


def _rounded(units: list[Unit], device: Device) -> list[int]:
    """Each unit's increment of the rounded cumulative time."""
    ends = accumulate(sum(kernel_us(device, kernel) for kernel in unit) for unit in units)
    return [after - before for before, after in pairwise([0, *map(round, ends)])]


def kernel_us(device: Device, kernel: Kernel) -> float:
    """A collective's own time, or the roofline's."""
    if kernel.comm_us is not None:
        return kernel.comm_us
    return roofline_us(device, kernel.op_class, kernel.flops, kernel.traffic)


def _common(unit: Unit, time_us: int) -> dict[str, Any]:
    """The fields that forward and backward ops share; a group's class is that of its kernel with most traffic."""
    main = max(unit, key=lambda kernel: (kernel.flops, kernel.traffic))
    return {
        "name": unit[0].group if len(unit) > 1 else unit[0].name,
        "time_us": time_us,
        "reads_input": INPUT in _reads(unit),
        "comm": main.comm_us is not None,
        "op_class": main.op_class,
        "flops": sum(kernel.flops for kernel in unit),
        "bytes": sum(kernel.traffic for kernel in unit),
    }
