"""How long Lynx's decisions take to find: HEU for one stage, and HEU with the partition (Figure 17, §7.6)."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

from experiments.reproduction import Cells, Result, Series, scalar
from solvers.ir.fields import require
from solvers.ir.hardware import Hardware
from solvers.ir.partition import PartitionProblem
from solvers.ir.recompute import RecomputeLayerPlan, RecomputeLayerProblem
from solvers.ir.solution import Limits, Solution, Status
from solvers.partition import Dp, partition_problem
from solvers.recompute.layer import Front, Heu, forget_fronts, layer_problem
from solvers.recompute.layer.layer import Layer
from solvers.workload import (
    LayerCosts,
    ModelShape,
    Parallelism,
    StageExtra,
    inflight,
    megatron_layer,
    stage_extras,
    static_bytes,
)


@dataclass(frozen=True)
class Pipeline:
    """A model cut into stages on a cluster, each device with so many bytes."""

    shape: ModelShape
    parallelism: Parallelism
    machine: Hardware
    budget_bytes: int

    @cached_property
    def costs(self) -> LayerCosts:
        """One layer's operators."""
        return megatron_layer(self.shape, self.parallelism, self.machine)

    @cached_property
    def extras(self) -> tuple[tuple[StageExtra, ...], ...]:
        """Embedding and head, where a stage has them."""
        stages = range(self.parallelism.pipeline)
        return tuple(stage_extras(self.shape, self.parallelism, self.machine, stage) for stage in stages)

    def extras_bytes(self, stage: int) -> int:
        """What embedding and head keep of all microbatches in flight."""
        return inflight(self.parallelism, stage) * sum(extra.activation_bytes for extra in self.extras[stage])

    def extras_us(self, stage: int) -> int:
        """Time of embedding and head, forward and backward."""
        return sum(extra.forward_us + extra.backward_us for extra in self.extras[stage])

    def heu_problem(self, stage: int, layers: int) -> RecomputeLayerProblem:
        """The recomputation problem of a stage with so many layers."""
        return layer_problem(
            self.costs,
            layers=layers,
            inflight_microbatches=inflight(self.parallelism, stage),
            last_stage=stage == self.parallelism.pipeline - 1,
            budget_bytes=self.budget_bytes,
            static_bytes=static_bytes(self.shape, self.parallelism, stage, layers) + self.extras_bytes(stage),
        )

    def even_layers(self) -> int:
        """Layers of the first stage of an even partition."""
        return -(-self.shape.layers // self.parallelism.pipeline)

    def stage_costs(self) -> PartitionProblem:
        """Every stage with every number of layers: its microbatch under HEU's best policy, None where none fits."""
        stages = self.parallelism.pipeline
        most = self.shape.layers - stages + 1
        fronts = {last: Front.of(Layer.of(self.heu_problem(stages - 1 if last else 0, 1))) for last in (False, True)}
        table = [self._row(stage, fronts[stage == stages - 1], most) for stage in range(stages)]
        absent: list[int | None] = [None] * (stages - 1)
        return partition_problem(self.shape.name, [[None, *row, *absent] for row in table])

    def _row(self, stage: int, front: Front, most: int) -> list[int | None]:
        held, extra_us, flying = self.extras_bytes(stage), self.extras_us(stage), inflight(self.parallelism, stage)
        pass_us = self.costs.forward_us + self.costs.backward_us
        row: list[int | None] = []
        for layers in range(1, most + 1):
            static = static_bytes(self.shape, self.parallelism, stage, layers)
            room = self.budget_bytes - static - held - flying * layers * self.costs.input_bytes
            choice = front.best(layers, flying, room)
            row.append(None if choice is None else layers * (pass_us + choice.time_us) + extra_us)
        return row


def pipeline_within(
    shape: ModelShape, machine: Hardware, split: Mapping[str, int], microbatch: int, share: float
) -> Pipeline:
    """A pipeline with `share` of what the first stage's activations need beyond its states, at least what fits.

    A budget between nothing and everything makes HEU decide; where all activations fit it has nothing to do.
    """
    parallelism = Parallelism(
        tensor=split["tensor"],
        pipeline=split["pipeline"],
        microbatch=microbatch,
        microbatches=split["pipeline"],
    )
    require(0 <= share <= 1, f"share is {share}: give a share between 0 and 1")
    loose = Pipeline(shape, parallelism, machine, 0)
    layers, flying = loose.even_layers(), inflight(parallelism, 0)
    fixed = static_bytes(shape, parallelism, 0, layers) + loose.extras_bytes(0)
    kept = flying * layers * loose.costs.kept_bytes
    return Pipeline(shape, parallelism, machine, fixed + int(share * kept))


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
