"""The `pipeline` kind: a whole step's layers per stage, policies, and stalls (formats.md 15; Lynx §§4.2, 5)."""

from typing import ClassVar, Literal

from solvers.ir.fields import LARGEST, Bytes, Count, Microseconds, Record, require
from solvers.ir.problem import Plan, Problem
from solvers.ir.recompute import LayerGroup, LayerOp, Window, require_earlier_inputs

PassOrder = Literal["1f1b", "gpipe"]
HideInStalls = Literal["none", "cooldown", "all"]
MOST_LAYERS = 10_000
MOST_PASSES = 1_000_000
"""Stages times microbatches of a problem at most."""


class PipelineStage(Record, frozen=True, kw_only=True):
    """One stage: its memory, and what it does and keeps beside its layers.

    `static_bytes` are its states without layers, `layer_static_bytes` those of each layer. `extra_us` is what embedding
    or head take of a microbatch, forward and backward; `extra_bytes` what they keep of each microbatch in flight.
    """

    budget_bytes: Bytes
    static_bytes: Bytes
    layer_static_bytes: Bytes
    extra_us: tuple[Microseconds, Microseconds]
    extra_bytes: Bytes = 0


class PipelineProblem(Problem, frozen=True, kw_only=True):
    """`layers` alike layers for the stages in their order; `ops`, `windows` and `backward_us` are of one layer."""

    layers: Count
    microbatches: Count
    order: PassOrder
    p2p_us: Microseconds
    layer_input_bytes: Bytes
    ops: tuple[LayerOp, ...]
    windows: tuple[Window, ...]
    backward_us: Microseconds
    stages: tuple[PipelineStage, ...]
    KIND: ClassVar[str] = "pipeline"

    def __post_init__(self) -> None:
        """Refuse what is no pipeline: too few layers, cycles, windows out of order, numbers beyond 2⁵³."""
        depth = len(self.stages)
        require(bool(self.ops), "ops is empty: a layer needs at least one op")
        require_earlier_inputs([op.inputs for op in self.ops])
        require(depth > 0, "stages is empty: a pipeline has at least one stage")
        require(
            depth <= self.layers,
            f"layers is {self.layers}, too few for {depth} stages with one each: give fewer stages",
        )
        require(self.layers <= MOST_LAYERS, f"layers is {self.layers}: give at most {MOST_LAYERS}")
        passes = depth * self.microbatches
        require(passes <= MOST_PASSES, f"{depth} stages times {self.microbatches} microbatches exceed {MOST_PASSES}")
        phases = [window.phase for window in self.windows]
        require(
            "stall" not in phases,
            "a window is in a stall, but a pipeline's stalls follow from its plan: leave it out (see hide_in_stalls)",
        )
        require(
            phases == sorted(phases, reverse=True),
            "a forward window stands behind a backward one: list windows in the order of time",
        )
        self._require_range(passes)

    def _require_range(self, passes: int) -> None:
        """The step and the bytes of a stage stay below 2⁵³ whatever is decided."""
        layer_us = 2 * self.forward_us + self.backward_us
        extra_us = max(sum(stage.extra_us) for stage in self.stages)
        longest = passes * (self.layers * layer_us + extra_us + 2 * self.p2p_us)
        require(longest <= LARGEST, f"the step may take {longest} us, more than 2^53: give coarser times")
        layer = self.layer_input_bytes + 3 * sum(op.output_bytes for op in self.ops)
        largest = max(
            one.static_bytes + self.layers * one.layer_static_bytes + self.microbatches * one.extra_bytes
            for one in self.stages
        )
        largest += self.microbatches * self.layers * layer
        require(largest <= LARGEST, f"a stage may hold {largest} bytes, more than 2^53: give coarser sizes")

    @property
    def forward_us(self) -> int:
        """One microbatch's forward pass through one layer."""
        return sum(op.time_us for op in self.ops)

    @property
    def budget_bytes(self) -> int:
        """The smallest budget of a stage: what an infeasible answer's least budget raises all lesser ones to."""
        return min(stage.budget_bytes for stage in self.stages)


class StagePolicies(Record, frozen=True, kw_only=True):
    """What a stage's layers store and recompute, as in `recompute-layer`; groups take the layers in their order."""

    groups: tuple[LayerGroup, ...]


class PipelinePlan(Plan, frozen=True, kw_only=True):
    """`layers[p]` layers and `stages[p]`'s policies for stage p; where recomputation may run ahead of a gradient."""

    layers: tuple[Count, ...]
    stages: tuple[StagePolicies, ...]
    hide_in_stalls: HideInStalls
