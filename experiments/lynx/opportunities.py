"""What the paper observes before it proposes anything: communication, memory by stage, wasted memory (§2.2, §2.3)."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from experiments.lynx.outcomes import Cell, compare, notes, value
from experiments.lynx.throughput import Split, parallelism, split_label
from experiments.pipeline.simulate import LARGEST, Step, pipeline_on, simulate
from experiments.reproduction import Cells, Result, Series
from experiments.reproduction.result import Value
from solvers.ir.hardware import Hardware
from solvers.partition.pipeline import Pipeline
from solvers.partition.policies import System
from solvers.workload import ModelShape, inflight, megatron_layer

GB = 1e9
FULL = {"full": System("full", "balanced")}


def figure_3a(
    cells: Cells,
    *,
    model: str,
    clusters: Sequence[str],
    tensors: Sequence[int],
    pipeline: int,
    microbatch_sizes: Sequence[int],
    microbatches: int,
) -> Result:
    """Share of all-reduces in the time of the layers, and the step, memory unlimited; labels `CLUSTER mbs N tp T`."""
    cells.total(len(clusters) * len(tensors) * len(microbatch_sizes))
    share: dict[str, Value] = {}
    step: dict[str, Value] = {}
    for cluster in clusters:
        for size in microbatch_sizes:
            for tensor in tensors:
                label = f"{cluster} mbs {size} tp {tensor}"
                cut = {"tensor": tensor, "pipeline": pipeline}
                found = cells.get(
                    {"at": label}, _communication, cells.shape(model), cells.hardware(cluster), cut, size, microbatches
                )
                share[label] = None if found is None else found["share"]
                step[label] = None if found is None else found["step_s"]
    named = " and ".join(clusters)
    return Result(
        series=(
            Series(name="communication share", unit="%", points=share),
            Series(name="step time", unit="s", points=step),
        ),
        notes=(f"Times by roofline and links of hardware {named}; nothing was measured.",),
    )


def _communication(
    shape: ModelShape, machine: Hardware, split: Split, microbatch: int, microbatches: int
) -> dict[str, float]:
    cut = parallelism(split, microbatch, microbatches)
    layer = megatron_layer(shape, cut, machine)
    step = simulate(Pipeline(shape, cut, machine, LARGEST), System("heu", "balanced"))
    assert isinstance(step, Step)
    comm_us, all_us = layer.forward_comm_us + layer.backward_comm_us, layer.forward_us + layer.backward_us
    return {"share": 100 * comm_us / all_us, "step_s": step.makespan_us / 1e6}


def figure_3b(
    cells: Cells,
    *,
    model: str,
    cluster: str,
    tensor: int,
    pipeline: int,
    microbatch_sizes: Sequence[int],
    microbatches: int,
) -> Result:
    """Peak memory of each stage over stage 0's under full recomputation, labels `mbs N stage S`."""
    split = {"tensor": tensor, "pipeline": pipeline}
    found = _full(cells, model, cluster, {f"mbs {size}": (split, size) for size in microbatch_sizes}, microbatches)
    over: dict[str, Value] = {}
    spread: dict[str, Value] = {}
    for label, cell in found.items():
        spread[label] = value(cell, "full", lambda figures: max(figures["peak_bytes"]) / min(figures["peak_bytes"]))
        for stage in range(pipeline):
            over[f"{label} stage {stage}"] = value(cell, "full", partial(_over_first, stage))
    cut = parallelism(split, microbatch_sizes[0], microbatches)
    copies = {f"stage {stage}": float(inflight(cut, stage)) for stage in range(pipeline)}
    return Result(
        series=(
            Series(name="memory over stage 0", unit="x", points=over),
            Series(name="highest over lowest", unit="x", points=spread),
            Series(name="copies", unit="", points=dict(copies)),
        ),
        notes=tuple(notes(cells.hardware(cluster), found)),
    )


def _over_first(stage: int, figures: Mapping[str, Any]) -> float:
    return float(figures["peak_bytes"][stage] / figures["peak_bytes"][0])


def full_recomputation(
    cells: Cells,
    *,
    model: str,
    cluster: str,
    microbatch_sizes: Sequence[int],
    microbatches: int,
    splits: Sequence[Split],
) -> Result:
    """What full recomputation releases though there is room for it, by stage, and its share of the step (§2.2)."""
    asked = {f"{split_label(split)} mbs {size}": (split, size) for split in splits for size in microbatch_sizes}
    found = _full(cells, model, cluster, asked, microbatches)
    machine, shape = cells.hardware(cluster), cells.shape(model)
    wasted: dict[str, Value] = {}
    share: dict[str, Value] = {}
    for label, (split, size) in asked.items():
        pipeline = pipeline_on(shape, machine, parallelism(split, size, microbatches))
        share[label] = value(found[label], "full", _share)
        for stage in range(split["pipeline"]):
            wasted[f"{label} stage {stage}"] = value(found[label], "full", partial(_wasted_gb, pipeline, stage))
    return Result(
        series=(
            Series(name="released without need", unit="GB", points=wasted),
            Series(name="share of recomputation", unit="%", points=share),
        ),
        notes=tuple(notes(machine, found)),
    )


def _share(figures: Mapping[str, Any]) -> float:
    """Recomputation in the time of all stages, bubbles included."""
    return float(100 * sum(figures["critical_us"]) / (len(figures["critical_us"]) * figures["makespan_us"]))


def _wasted_gb(pipeline: Pipeline, stage: int, figures: Mapping[str, Any]) -> float:
    """What a device has free, but no more than what was released there."""
    layer, layers = pipeline.costs, figures["layers"][stage]
    released = inflight(pipeline.parallelism, stage) * layers * (layer.kept_bytes - layer.input_bytes)
    return min(int(released), pipeline.budget_bytes - int(figures["peak_bytes"][stage])) / GB


def _full(
    cells: Cells, model: str, cluster: str, asked: Mapping[str, tuple[Split, int]], microbatches: int
) -> dict[str, Cell | None]:
    """Full recomputation on the balanced partition, by label → (split, microbatch size)."""
    cells.total(len(asked))
    shape, machine = cells.shape(model), cells.hardware(cluster)
    return {
        label: cells.get({"at": label}, _recomputed, shape, machine, split, size, microbatches)
        for label, (split, size) in asked.items()
    }


def _recomputed(
    shape: ModelShape, machine: Hardware, split: Split, microbatch: int, microbatches: int
) -> dict[str, dict[str, Any]]:
    return compare(pipeline_on(shape, machine, parallelism(split, microbatch, microbatches)), FULL)
