"""A model on devices as a replan problem: times by a roofline, bytes by formulas, everything else a stated figure."""

import math
from dataclasses import dataclass
from functools import cached_property

import msgspec

from solvers.ir.fields import require
from solvers.ir.hardware import Hardware
from solvers.ir.replan import CurrentPipeline, CurrentState, ReplanProblem
from solvers.workload import (
    LayerCosts,
    ModelShape,
    Parallelism,
    embedding_extra,
    head_extra,
    megatron_layer,
    static_bytes,
)
from solvers.workload.stage import BYTES_PER_PARAMETER

GRADIENT_BYTES = 2
"""Bytes of a parameter's gradient in an all-reduce: half precision."""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A model on `tensor` devices to a node; a node is what fails as one, and sends and receives as one device.

    `bytes_per_s` is what a device sends to and receives from other nodes; `head` false leaves embedding and head out,
    as the paper's formulas do. `layers` and `sequence` replace the shape's.
    """

    shape: ModelShape
    machine: Hardware
    bytes_per_s: int
    tensor: int = 1
    head: bool = True
    layers: int | None = None
    sequence: int | None = None
    flash: bool = True
    microbatch: int = 1
    sequence_parallel: bool = False

    def __post_init__(self) -> None:
        """Refuse a link without a rate."""
        require(self.bytes_per_s >= 1, f"bytes_per_s is {self.bytes_per_s}: give a rate of at least 1")

    @cached_property
    def sized(self) -> ModelShape:
        """The shape with this model's layers, sequence and attention."""
        shape = msgspec.structs.replace(self.shape, attention="flash" if self.flash else self.shape.attention)
        if self.layers is not None:
            shape = msgspec.structs.replace(shape, layers=self.layers)
        return shape if self.sequence is None else msgspec.structs.replace(shape, sequence=self.sequence)

    @cached_property
    def cut(self) -> Parallelism:
        """Three stages: a first, a middle and a last one tell what embedding, a layer and the head need."""
        return Parallelism(
            tensor=self.tensor,
            pipeline=3,
            sequence_parallel=self.sequence_parallel,
            microbatch=self.microbatch,
            microbatches=1,
        )

    @cached_property
    def costs(self) -> LayerCosts:
        """One layer's operators."""
        return megatron_layer(self.sized, self.cut, self.machine)

    def static_bytes(self, stage: int) -> int:
        """States of one of three stages: of one layer in the middle, and what embedding or head add to a layer."""
        layer = static_bytes(self.sized, self.cut, 1, 2) - static_bytes(self.sized, self.cut, 1, 1)
        return layer if stage == 1 else static_bytes(self.sized, self.cut, stage, 1) - layer

    def all_reduce_us(self, replicas: int) -> int:
        """Time to sum one layer's gradients over its replicas, in a ring."""
        if replicas == 1:
            return 0
        size = self.static_bytes(1) // BYTES_PER_PARAMETER * GRADIENT_BYTES
        return math.ceil(2 * (replicas - 1) * size * 10**6 / (replicas * self.bytes_per_s))

    def problem(self, *, depth: int, data: int, microbatches: int) -> ReplanProblem:
        """The cluster before any failure: `data` pipelines of `depth` nodes, `microbatches` in a step of them all."""
        embedding = embedding_extra(self.sized, self.cut, self.machine)
        head = head_extra(self.sized, self.cut, self.machine)
        return ReplanProblem(
            name=f"{self.sized.name}, {self.sized.layers} layers, {data} pipelines of {depth}",
            nodes=depth * data,
            microbatches=microbatches,
            layers=self.sized.layers,
            forward_us=self.costs.forward_us,
            backward_us=self.costs.backward_us,
            first_extra_us=(embedding.forward_us, embedding.backward_us) if self.head else (0, 0),
            last_extra_us=(head.forward_us, head.backward_us) if self.head else (0, 0),
            p2p_us=math.ceil(self.costs.input_bytes * 10**6 / self.bytes_per_s),
            sync_us=0,
            memory_bytes=self.machine.device().memory_bytes,
            layer_static_bytes=self.static_bytes(1),
            layer_activation_bytes=self.costs.kept_bytes,
            first_static_bytes=self.static_bytes(0) if self.head else 0,
            last_static_bytes=self.static_bytes(2) + head.activation_bytes if self.head else 0,
            max_depth=min(self.sized.layers, depth * data),
            data_parallel=data,
            layer_sync_us=self.all_reduce_us(data),
        )


def even_layers(layers: int, depth: int) -> tuple[int, ...]:
    """As many layers on every stage, those left over on the first ones; raises `InvalidInput` for too few."""
    require(layers >= depth, f"{layers} layers cannot fill {depth} stages with one each: take fewer stages")
    share, rest = divmod(layers, depth)
    return tuple(share + (stage < rest) for stage in range(depth))


def symmetric_state(problem: ReplanProblem, depth: int, data: int) -> CurrentState:
    """`data` alike pipelines before any failure, nodes numbered along them; needs as many microbatches for each."""
    require(
        problem.microbatches % data == 0,
        f"{problem.microbatches} microbatches are no multiple of {data} pipelines: choose a multiple",
    )
    layers = even_layers(problem.layers, depth)
    pipelines = tuple(
        CurrentPipeline(
            layers=layers,
            nodes=tuple(range(number * depth, (number + 1) * depth)),
            microbatches=problem.microbatches // data,
        )
        for number in range(data)
    )
    return CurrentState(pipelines=pipelines, failed=())


def after_failures(
    problem: ReplanProblem,
    state: CurrentState,
    failed: tuple[int, ...],
    *,
    restart_us: int,
    bytes_per_s: int,
    expected_interval_us: int,
) -> ReplanProblem:
    """The problem once these nodes of a running state have failed."""
    return msgspec.structs.replace(
        problem,
        name=f"{problem.name}, {len(failed)} lost",
        nodes=problem.nodes - len(failed),
        max_depth=min(problem.max_depth, problem.nodes - len(failed)),
        data_parallel=None,
        current=msgspec.structs.replace(state, failed=failed),
        restart_us=restart_us,
        bytes_per_s=bytes_per_s,
        expected_interval_us=expected_interval_us,
    )
