"""Steps of several systems on one pipeline as the JSON of a table's cell, and the series made of cells."""

from collections.abc import Callable, Mapping
from typing import Any

from experiments.pipeline.figures import figures_of
from experiments.pipeline.simulate import simulate
from experiments.reproduction import OUT_OF_MEMORY, Series
from experiments.reproduction.result import Value
from solvers.ir.hardware import Hardware
from solvers.partition.bounds import best_possible
from solvers.partition.pipeline import Pipeline
from solvers.partition.policies import SYSTEMS, System
from solvers.partition.stages import Stages

BEST = "best possible"
MICRO = 10**6
Cell = Mapping[str, Mapping[str, Any]]
"""What a cell holds: for each system the figures of its step, or the reason why there is none."""


def compare(pipeline: Pipeline, systems: Mapping[str, System]) -> dict[str, dict[str, Any]]:
    """Every system's step on one pipeline; systems of one policy share what its stages were asked."""
    stages: dict[str, Stages] = {}
    return {name: figures_of(simulate(pipeline, system, stages)) for name, system in systems.items()}


def best_figures(pipeline: Pipeline) -> dict[str, Any]:
    """The throughput that no mix of policies and no partition exceeds; the reason where nothing fits."""
    best, cut = best_possible(pipeline.problem, "cooldown"), pipeline.parallelism
    if best.bound_us is None:
        return {"reason": best.reason}
    return {"samples_per_s": cut.microbatch * cut.microbatches * MICRO / best.bound_us}


def value(cell: Cell | None, system: str, read: Callable[[Mapping[str, Any]], float]) -> Value:
    """A figure of a system; `OUT_OF_MEMORY` where it has no step, None where the cell failed."""
    if cell is None:
        return None
    return OUT_OF_MEMORY if "reason" in cell[system] else read(cell[system])


def throughput(cell: Cell | None, system: str) -> Value:
    """Samples per second."""
    return value(cell, system, lambda figures: float(figures["samples_per_s"]))


def quotient(first: Value, second: Value) -> Value:
    """first / second; the outcome of whichever is no number."""
    for one in (first, second):
        if not isinstance(one, float | int):
            return one
    assert isinstance(first, float | int)
    assert isinstance(second, float | int)
    return first / second


def throughputs(cells: Mapping[str, Cell | None], prefix: str = "") -> list[Series]:
    """A series for each system of §7.1, and Lynx's gains over the others; `cells` by label."""
    found = [
        Series(
            name=f"{prefix}{name}",
            unit="samples/s",
            points={label: throughput(cell, name) for label, cell in cells.items()},
        )
        for name in SYSTEMS
    ]
    return found + [
        Series(
            name=f"{prefix}lynx over {name}",
            unit="x",
            points={label: gain(cell, name) for label, cell in cells.items()},
        )
        for name in SYSTEMS
        if name != "lynx"
    ]


def gain(cell: Cell | None, over: str) -> Value:
    """Lynx's throughput over another system's."""
    return quotient(throughput(cell, "lynx"), throughput(cell, over))


def notes(machine: Hardware, cells: Mapping[str, Cell | None]) -> list[str]:
    """Where the times are from, and why something is out of memory."""
    found = [f"Times by roofline and links of hardware {machine.name}; nothing was measured."]
    for label, cell in cells.items():
        unfit = [] if cell is None else [name for name, one in cell.items() if "reason" in one and name != BEST]
        if cell is not None and unfit:
            found.append(f"{label}: out of memory with {', '.join(unfit)}; {unfit[-1]}: {cell[unfit[-1]]['reason']}.")
    return found
