"""What the assumed constants change: slower collectives, less memory, more microbatches in a step."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from experiments.lynx.breakdown import TECHNIQUES
from experiments.lynx.outcomes import Cell, compare, notes, quotient, throughput, value
from experiments.lynx.throughput import parallelism
from experiments.pipeline.simulate import pipeline_on
from experiments.reproduction import Cells, Result, Series
from experiments.reproduction.result import Value
from solvers.ir.hardware import HOST, Hardware
from solvers.partition.pipeline import machine_split
from solvers.partition.policies import SYSTEMS, System
from solvers.timeline.collectives import EFFICIENCY_CLASS
from solvers.workload import ModelShape

COMPARED: dict[str, System] = {**SYSTEMS, "recomputation": TECHNIQUES["recomputation"]}
GAINS = {
    "lynx over full": ("lynx", "full"),
    "lynx over adapipe": ("lynx", "adapipe"),
    "partition over balanced": ("lynx", "recomputation"),
}


def sensitivity(
    cells: Cells,
    *,
    cluster: str,
    model: str,
    microbatch_size: int,
    microbatches: int,
    varied: Mapping[str, Sequence[float]],
) -> Result:
    """One constant at a time: labels `as assumed` and `WHAT F`, F the factor of the rate, the memory or the count.

    `varied` maps `collectives` (the rate that they reach), `memory` (of a device) and `microbatches` to factors.
    """
    machine, shape = cells.hardware(cluster), cells.shape(model)
    worlds = {"as assumed": ("memory", 1.0)}
    worlds |= {f"{what} {factor:g}": (what, factor) for what, factors in varied.items() for factor in factors}
    cells.total(len(worlds))
    found = {
        label: cells.get({"world": label}, _compared, shape, machine, microbatch_size, microbatches, what, factor)
        for label, (what, factor) in worlds.items()
    }
    series = [
        Series(
            name=name,
            unit="x",
            points={label: quotient(throughput(cell, one), throughput(cell, other)) for label, cell in found.items()},
        )
        for name, (one, other) in GAINS.items()
    ]
    hidden = {label: value(cell, "recomputation", most_hidden) for label, cell in found.items()}
    series.append(Series(name="overlapping, largest of a stage", unit="%", points=hidden))
    series.append(Series(name="overhead removed from stage 0", unit="%", points=_removed(found)))
    return Result(series=tuple(series), notes=tuple(notes(machine, found)))


def most_hidden(figures: Mapping[str, Any]) -> float:
    """Recomputation that collectives and stalls hide, of the forward time of a stage's layers."""
    parts = zip(
        figures["window_hidden_us"], figures["stall_hidden_us"], figures["critical_us"], figures["kept_us"], strict=True
    )
    return max(
        float(100 * (windows + stalls) / (windows + stalls + critical + kept))
        for windows, stalls, critical, kept in parts
    )


def _removed(found: Mapping[str, Cell | None]) -> dict[str, Value]:
    removed: dict[str, Value] = {}
    for label, cell in found.items():
        ours, full = (
            value(cell, name, lambda figures: figures["critical_us"][0]) for name in ("recomputation", "full")
        )
        ratio = quotient(ours, full)
        removed[label] = 100 * (1 - ratio) if isinstance(ratio, float) else ratio
    return removed


def _compared(
    shape: ModelShape,
    machine: Hardware,
    microbatch: int,
    microbatches: int,
    what: str,
    factor: float,
) -> dict[str, dict[str, Any]]:
    count = round(microbatches * factor) if what == "microbatches" else microbatches
    cut = parallelism(machine_split(machine), microbatch, count)
    return compare(pipeline_on(shape, scaled(machine, what, factor), cut), COMPARED)


def scaled(machine: Hardware, what: str, factor: float) -> Hardware:
    """The machine with another rate of collectives, or another memory, on every device."""
    devices = []
    for device in machine.devices:
        reached = device.efficiency.get(EFFICIENCY_CLASS, 1.0)
        if what == "collectives" and device.name != HOST:
            efficiency = {**device.efficiency, EFFICIENCY_CLASS: reached * factor}
            devices.append(msgspec.structs.replace(device, efficiency=efficiency))
        elif what == "memory" and device.name != HOST:
            devices.append(msgspec.structs.replace(device, memory_bytes=round(device.memory_bytes * factor)))
        else:
            devices.append(device)
    return msgspec.structs.replace(machine, devices=tuple(devices))
