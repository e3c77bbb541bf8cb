"""What to keep or recompute: kinds `recompute-graph` (Lynx-OPT; formats.md 4), `recompute-layer` (Lynx-HEU; 5)."""

from typing import ClassVar, Literal

import msgspec

from solvers.ir.fields import Bytes, Count, Index, Microseconds, Record, require, require_index, require_step
from solvers.ir.problem import Plan, Problem


class RecomputeOp(Record, frozen=True, kw_only=True, omit_defaults=True):
    """An operator of a graph; `inputs` are earlier op indices, `comm` marks communication, hiding recomputation.

    Where `replay` is false it never runs again: what it made stays as long as anything reads it.
    """

    name: str
    time_us: Microseconds
    output_bytes: Bytes
    inputs: tuple[Index, ...]
    comm: bool
    replay: bool = True


class RecomputeGraphProblem(Problem, frozen=True, kw_only=True, omit_defaults=True):
    """Ops in order, op t first in stage t; `static_bytes` is parameters, their gradients, optimizer states.

    Before the stage `replays_from` nothing runs again: a program's forward pass holds by itself what it reads.
    """

    budget_bytes: Bytes
    static_bytes: Bytes
    ops: tuple[RecomputeOp, ...]
    replays_from: Index = 0
    KIND: ClassVar[str] = "recompute-graph"

    def __post_init__(self) -> None:
        """Refuse an empty graph, inputs that are not earlier ops (hence cycles), and a stage that there is not."""
        require(bool(self.ops), "ops is empty: a recomputation problem needs at least one op")
        require_earlier_inputs([op.inputs for op in self.ops])
        require_index(self.replays_from, len(self.ops), "replays_from", "stages")
        count = len(self.ops)  # each runs at most once a stage, from its own on
        require_step(sum((count - i) * op.time_us for i, op in enumerate(self.ops)))


class RecomputeGraphPlan(Plan, frozen=True, kw_only=True, omit_defaults=True):
    """`compute` lists the [stage, op] pairs with R = 1 (every [t, t] included), `keep` those with S = 1.

    `keep_runs` says the same as `keep` in fewer words, [op, first stage, last stage]: a large plan has it instead.
    """

    compute: tuple[tuple[Index, Index], ...]
    keep: tuple[tuple[Index, Index], ...] = ()
    keep_runs: tuple[tuple[Index, Index, Index], ...] = ()


class Window(Record, frozen=True, kw_only=True):
    """A communication or a stall in which recomputation is free, for each layer; `in` says in which pass it stands."""

    name: str
    phase: Literal["forward", "backward", "stall"] = msgspec.field(name="in")
    time_us: Microseconds


class LayerOp(Record, frozen=True, kw_only=True):
    """An operator of one layer; empty `inputs` mean the layer input; `needed`: some backward op reads its output."""

    name: str
    time_us: Microseconds
    output_bytes: Bytes
    inputs: tuple[Index, ...]
    comm: bool
    needed: bool


class RecomputeLayerProblem(Problem, frozen=True, kw_only=True):
    """`layers` identical layers of one stage with `inflight_microbatches` in flight; windows stand in time order.

    `last_windowless`: the last layer, whose backward pass is the first, has no backward windows. `again_bytes`: what
    each op adds to the working set where it is recomputed; None: its output.
    """

    layers: Count
    inflight_microbatches: Count
    last_stage: bool
    budget_bytes: Bytes
    static_bytes: Bytes
    layer_input_bytes: Bytes
    windows: tuple[Window, ...]
    ops: tuple[LayerOp, ...]
    last_windowless: bool = False
    again_bytes: tuple[Bytes, ...] | None = None
    KIND: ClassVar[str] = "recompute-layer"

    def __post_init__(self) -> None:
        """Refuse an empty layer and inputs that are not earlier ops (hence cycles)."""
        require(bool(self.ops), "ops is empty: a layer needs at least one op")
        if self.again_bytes is not None:
            given, count = self.again_bytes, len(self.ops)
            require(len(given) == count, f"again_bytes has {len(given)} sizes for {count} ops: give one for each op")
            for number, (size, op) in enumerate(zip(given, self.ops, strict=True)):
                require(
                    size <= op.output_bytes,
                    f"again_bytes[{number}] is {size}, above the op's output of {op.output_bytes} bytes: "
                    "give at most that",
                )
        require_earlier_inputs([op.inputs for op in self.ops])
        require_step(self.layers * sum(op.time_us for op in self.ops))


class LayerGroup(Record, frozen=True, kw_only=True):
    """A policy for `layers` of the layers: ops stored, and [op, window] pairs (len(windows) is the critical path)."""

    layers: Count
    stored: tuple[Index, ...]
    recomputed: tuple[tuple[Index, Index], ...]


class RecomputeLayerPlan(Plan, frozen=True, kw_only=True):
    """The groups' layer counts sum to the problem's layers."""

    groups: tuple[LayerGroup, ...]


def require_earlier_inputs(inputs: list[tuple[int, ...]]) -> None:
    """Refuse an op that reads itself or a later op: ops stand in execution order, so the graph is acyclic."""
    for number, sources in enumerate(inputs):
        for source in sources:
            require(
                0 <= source < number,
                f"ops[{number}] reads op {source}, which is not an earlier op: list ops in execution order (no cycles)",
            )
