"""How long Lynx's decisions take to find: HEU for one stage, and HEU with the partition (Figure 17, §7.6)."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from experiments.reproduction import Cells, Result, Series, scalar
from solvers.ir.hardware import Hardware
from solvers.ir.recompute import RecomputeLayerPlan
from solvers.ir.solution import Limits, Solution, Status
from solvers.partition import Dp
from solvers.partition.pipeline import Pipeline, pipeline_within
from solvers.recompute.layer import Heu, forget_fronts
from solvers.workload import (
    ModelShape,
)


def search_heu(pipeline: Pipeline) -> Solution[RecomputeLayerPlan]:
    """HEU for the first stage of an even partition, nothing remembered."""
    forget_fronts()
    return Heu().solve(pipeline.heu_problem(0, pipeline.even_layers()), Limits())


def search_partition(pipeline: Pipeline) -> Solution[Any]:
    """HEU for every stage with every number of layers, then the exact partition, nothing remembered."""
    return Dp().solve(pipeline.stage_costs(), Limits())


@dataclass(frozen=True)
class Searched:
    """An answer, and the medians of what finding it took: by the clock, and of this thread's processor time."""

    answer: Solution[Any]
    seconds: float
    processor_s: float


def searched(search: Callable[[Pipeline], Solution[Any]], pipeline: Pipeline, runs: int) -> Searched:
    """Search so many times, the operators' times given."""
    assert pipeline.costs is not None  # made before the clock starts
    spent = []
    for _ in range(runs):
        began, began_processor = time.perf_counter(), time.thread_time()
        answer = search(pipeline)
        spent.append((time.perf_counter() - began, time.thread_time() - began_processor))
    wall, processor = zip(*spent, strict=True)
    return Searched(answer, median(wall), median(processor))


def figure_17(
    cells: Cells, *, cluster: str, splits: Mapping[str, Mapping[str, int]], microbatch: int, share: float, runs: int
) -> Result:
    """Search times by model; `splits` maps a model to its tensor and pipeline parallelism."""
    machine = cells.hardware(cluster)
    cells.total(len(splits))
    found = {
        model: cells.get({"model": model}, _searched, cells.shape(model), machine, split, microbatch, share, runs)
        for model, split in splits.items()
    }
    names = {
        "heu search time": "heu_s",
        "heu and partition search time": "partition_s",
        "heu processor time": "heu_processor_s",
        "heu and partition processor time": "partition_processor_s",
    }
    points = {
        name: {model: None if cell is None else cell[key] for model, cell in found.items()}
        for name, key in names.items()
    }
    known = [value for value in points["heu processor time"].values() if value is not None]
    return Result(
        series=(
            *(Series(name=name, unit="s", points=values) for name, values in points.items()),
            scalar("longest over shortest", "x", max(known) / min(known) if known else None),
        ),
        notes=tuple(_note(model, cell) for model, cell in found.items() if cell is not None),
    )


def _searched(
    shape: ModelShape, machine: Hardware, split: Mapping[str, int], microbatch: int, share: float, runs: int
) -> dict[str, Any]:
    pipeline = pipeline_within(shape, machine, split, microbatch, share)
    heu, both = searched(search_heu, pipeline, runs), searched(search_partition, pipeline, runs)
    return {
        "heu_s": heu.seconds,
        "heu_processor_s": heu.processor_s,
        "heu_status": heu.answer.status.value,
        "heu_us": heu.answer.objective,
        "partition_s": both.seconds,
        "partition_processor_s": both.processor_s,
        "partition_status": both.answer.status.value,
        "layers": None if both.answer.plan is None else list(both.answer.plan.layers),
        "budget_bytes": pipeline.budget_bytes,
    }


def _note(model: str, cell: Mapping[str, Any]) -> str:
    infeasible = cell["partition_status"] == Status.INFEASIBLE.value
    layers = "no partition fits" if infeasible else f"partition {cell['layers']}"
    return f"{model}: budget {cell['budget_bytes']:,} bytes, {cell['heu_us']} µs on the critical path, {layers}"
