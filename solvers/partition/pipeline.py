"""A model cut into stages on a cluster: what is asked of each stage, and what all stages cost."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from solvers.ir.fields import require
from solvers.ir.hardware import Hardware
from solvers.ir.partition import PartitionProblem
from solvers.ir.pipeline import PassOrder, PipelineProblem, PipelineStage
from solvers.ir.recompute import RecomputeLayerProblem
from solvers.partition.make import pipeline_of
from solvers.partition.table import partition_problem
from solvers.recompute.layer import Front, layer_problem
from solvers.recompute.layer.layer import Layer
from solvers.timeline.collectives import accelerators
from solvers.workload import (
    LayerCosts,
    ModelShape,
    Parallelism,
    StageExtra,
    inflight,
    megatron_layer,
    p2p_us,
    stage_extras,
    static_bytes,
)


def machine_split(machine: Hardware) -> dict[str, int]:
    """Lynx §7.5: tensor parallelism is the accelerators of a machine, pipeline parallelism the number of machines."""
    names = accelerators(machine)
    nodes = dict.fromkeys(name.partition(".")[0] for name in names)
    return {"tensor": len(names) // len(nodes), "pipeline": len(nodes)}


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

    @cached_property
    def problem(self) -> PipelineProblem:
        """The whole step as a problem of kind `pipeline`, in the order 1F1B."""
        return self.problem_in("1f1b")

    def problem_in(self, order: PassOrder) -> PipelineProblem:
        """The whole step as a problem of kind `pipeline`."""
        cut = self.parallelism
        stages = [self._stage(stage) for stage in range(cut.pipeline)]
        hop = p2p_us(self.shape, cut, self.machine)
        layers = self.shape.layers
        return pipeline_of(self.costs, stages, layers=layers, microbatches=cut.microbatches, p2p_us=hop, order=order)

    def _stage(self, stage: int) -> PipelineStage:
        extras, alone = self.extras[stage], static_bytes(self.shape, self.parallelism, stage, 0)
        return PipelineStage(
            budget_bytes=self.budget_bytes,
            static_bytes=alone,
            layer_static_bytes=static_bytes(self.shape, self.parallelism, stage, 1) - alone,
            extra_us=(sum(extra.forward_us for extra in extras), sum(extra.backward_us for extra in extras)),
            extra_bytes=sum(extra.activation_bytes for extra in extras),
        )

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
