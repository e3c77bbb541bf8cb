"""The least slowest stage against the fastest 1F1B step, on HEU's costs: how much the proxy of §5 loses."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.lynx.throughput import Split, parallelism, split_label
from experiments.pipeline.simulate import Step, judged, pipeline_on
from experiments.reproduction import OUT_OF_MEMORY, Cells, Result, Series
from experiments.reproduction.result import Value
from solvers.ir.hardware import Hardware
from solvers.partition.policies import Cut, System, decide
from solvers.partition.stages import Stages
from solvers.partition.steps import fastest, step_by
from solvers.workload import ModelShape

CUTS: tuple[Cut, ...] = ("dp", "greedy-lynx", "balanced")


def partitions(
    cells: Cells,
    *,
    cluster: str,
    models: Sequence[str],
    splits: Sequence[Split],
    microbatch_sizes: Sequence[int],
    microbatches: Sequence[int],
) -> Result:
    """What each way to cut loses to the fastest partition, labels `MODEL tp T pp P mbs N of M`."""
    cells.total(len(models) * len(splits) * len(microbatch_sizes) * len(microbatches))
    machine = cells.hardware(cluster)
    found: dict[str, Mapping[str, Any] | None] = {}
    for model in models:
        for split in splits:
            for size in microbatch_sizes:
                for count in microbatches:
                    label = f"{model} {split_label(split)} mbs {size} of {count}"
                    found[label] = cells.get({"at": label}, losses, cells.shape(model), machine, split, size, count)
    series = [
        Series(name=f"{cut} over fastest", unit="%", points={label: _loss(cell, cut) for label, cell in found.items()})
        for cut in CUTS
    ]
    gaps = {label: _gap(cell) for label, cell in found.items()}
    return Result(
        series=(*series, Series(name="gap of the fastest", unit="%", points=gaps)),
        notes=(f"HEU's costs; times by roofline and links of hardware {cluster}; nothing was measured.",),
    )


def losses(shape: ModelShape, machine: Hardware, split: Split, microbatch: int, microbatches: int) -> dict[str, Any]:
    """The fastest partition of HEU's stages, and the steps of the other ones; the reason where nothing fits."""
    pipeline = pipeline_on(shape, machine, parallelism(split, microbatch, microbatches))
    stages = Stages(pipeline.problem, decide("heu"), as_printed=True)
    best = fastest(stages, System("heu", "fastest", "cooldown"))
    if best.makespan_us is None:
        return {"reason": best.reason}
    found: dict[str, Any] = {"fastest_us": best.makespan_us, "bound_us": best.bound_us, "layers": best.layers}
    for cut in CUTS:
        step = judged(pipeline, step_by(pipeline.problem, System("heu", cut, "cooldown"), stages))
        found[cut] = step.makespan_us if isinstance(step, Step) else None
    return found


def _loss(cell: Mapping[str, Any] | None, cut: str) -> Value:
    if cell is None:
        return None
    if "reason" in cell:
        return OUT_OF_MEMORY
    return "does not fit" if cell[cut] is None else float(100 * (cell[cut] / cell["fastest_us"] - 1))


def _gap(cell: Mapping[str, Any] | None) -> Value:
    if cell is None:
        return None
    return OUT_OF_MEMORY if "reason" in cell else float(100 * (1 - cell["bound_us"] / cell["fastest_us"]))
