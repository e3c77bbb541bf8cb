"""A training step at the paper's shapes by formulas: graphs of a microbatch, static memory, what steps take besides."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec

from solvers.check import check_plan
from solvers.ir.codec import plan_file
from solvers.ir.errors import BayplanError
from solvers.ir.graph import Op, OpGraph
from solvers.ir.hardware import Hardware
from solvers.ir.solution import Limits, Solution, Solver
from solvers.ir.swap import SwapPlan, SwapProblem
from solvers.partition import even_split
from solvers.swap.make import make_swap_problem
from solvers.timeline.collectives import accelerators
from solvers.workload import (
    BackwardOp,
    ForwardOp,
    LayerCosts,
    ModelShape,
    Parallelism,
    all_gather_us,
    embedding_extra,
    head_extra,
    megatron_layer,
    reduce_scatter_us,
    stage_graph,
    static_bytes,
    tensor_group,
)
from solvers.workload.stage import BYTES_PER_PARAMETER

HEAD_WIDTH_BYTES = 10
"""At the loss, logits stand in memory in 2 bytes, in 4, and their softmax or its gradient in 4."""
LOGITS_KEPT_BYTES = 4
"""Of these, what `head_extra` already counts as kept."""
UPDATE_TRAFFIC_BYTES = 30
"""Adam reads 16 bytes of states, weights and gradients a parameter, and writes 14 (all but the gradient)."""


@dataclass(frozen=True)
class Memory:
    """What the published settings leave open: bytes a parameter, and how much more eager kernels keep than fused ones.

    Every device holds `whole_bytes` a parameter, and `shared_bytes` cut over the data-parallel replicas (ZeRO-2:
    gradients and optimizer states). `activation_factor` multiplies what layers keep for their backward pass. Of a
    device's memory `reserved_bytes` are nobody's: the runtime's own, communication buffers, fragments.
    """

    whole_bytes: float = 2
    shared_bytes: float = 14
    activation_factor: float = 1
    reserved_bytes: float = 0

    def static_bytes(self, parameters: int, data: int) -> int:
        """Weights, gradients and states of a number of parameters on one device."""
        return round(parameters * (self.whole_bytes + self.shared_bytes / data))


@dataclass(frozen=True)
class Training:
    """A model, how it is cut over a server's devices, and what is assumed of its memory."""

    shape: ModelShape
    cut: Parallelism
    machine: Hardware
    memory: Memory = Memory()

    @cached_property
    def costs(self) -> LayerCosts:
        """One layer's operators; tensors that wait for the backward pass take `activation_factor` times their bytes."""
        return stretched(megatron_layer(self.shape, self.cut, self.machine), self.memory.activation_factor)

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers of each pipeline stage."""
        return even_split(self.shape.layers, self.cut.pipeline)

    def parameters(self, stage: int) -> int:
        """Parameters of a stage on one device."""
        return static_bytes(self.shape, self.cut, stage, self.layers[stage]) // BYTES_PER_PARAMETER

    def graph(self, stage: int = 0, *, recompute: bool = False) -> OpGraph:
        """One microbatch through a stage; with `recompute` every layer runs again before its backward pass."""
        last = stage == self.cut.pipeline - 1
        given = (self.shape, self.cut, self.machine)
        graph = stage_graph(
            recomputed(self.costs) if recompute else self.costs,
            self.layers[stage],
            embedding=embedding_extra(*given) if stage == 0 else None,
            head=head_extra(*given) if last else None,
            static_bytes=self.memory.static_bytes(self.parameters(stage), self.cut.data),
        )
        return self._with_workspace(graph) if last else graph

    def _with_workspace(self, graph: OpGraph) -> OpGraph:
        """Add the copies of the logits that stand in memory only while the head runs."""
        columns = -(-self.shape.vocab // self.cut.tensor)
        more = (HEAD_WIDTH_BYTES - LOGITS_KEPT_BYTES) * self.tokens * columns
        heads = [op.name in ("head", "head backward") for op in graph.ops]
        memory = tuple(use + more * is_head for use, is_head in zip(graph.memory_bytes, heads, strict=True))
        return msgspec.structs.replace(graph, memory_bytes=memory)

    @property
    def tokens(self) -> int:
        """Tokens of a microbatch."""
        return self.shape.sequence * self.cut.microbatch

    @property
    def budget_bytes(self) -> int:
        """What tensors may take of a device's memory."""
        return self.machine.device().memory_bytes - round(self.memory.reserved_bytes)

    def swap_problem(self, graph: OpGraph) -> SwapProblem:
        """Which tensors of a graph of this training leave the device."""
        return make_swap_problem(graph, self.machine, self.budget_bytes)

    @property
    def update_us(self) -> int:
        """The optimizer's step: its traffic over the device's memory, states cut over the replicas."""
        device = self.machine.device()
        traffic = UPDATE_TRAFFIC_BYTES * self.parameters(0) // self.cut.data
        return round(traffic * 1e6 / (device.bytes_per_s * device.reached("elementwise")))

    @property
    def replicas_us(self) -> int:
        """Gradients scattered over the replicas and weights gathered from them, once a step, hidden behind nothing."""
        group = tensor_group(self.machine, min(self.cut.data, len(accelerators(self.machine))))
        size = 2 * self.parameters(0)
        return round(reduce_scatter_us(self.machine, group, size) + all_gather_us(self.machine, group, size))

    @property
    def message_us(self) -> int:
        """A microbatch's activations sent to the next stage in the same server, and gathered there."""
        if self.cut.pipeline == 1:
            return 0
        names = accelerators(self.machine)
        whole = 2 * self.tokens * self.shape.hidden
        group = tensor_group(self.machine, self.cut.tensor)
        sent = self.machine.link(names[0], names[1]).transfer_us(-(-whole // self.cut.tensor))
        return sent if self.cut.sequence_parallel else sent + round(all_gather_us(self.machine, group, whole))


def judged(solver: Solver[SwapProblem, Solution[SwapPlan]], problem: SwapProblem, limits: Limits) -> Solution[SwapPlan]:
    """The solver's answer, whose plan the independent checker has found no fault with; raises `BayplanError`."""
    answer = solver.solve(problem, limits)
    found = check_plan(problem, plan_file(answer, problem.KIND, None)).violations if answer.plan is not None else ()
    if found:
        raise BayplanError(f"the plan of {answer.solver} does not pass its check: {found[0]}")
    return answer


def stretched(costs: LayerCosts, factor: float) -> LayerCosts:
    """The layer with `factor` times the bytes in every tensor that it keeps, but its output, the next layer's input."""
    last = len(costs.forward) - 1
    forward = tuple(
        msgspec.structs.replace(op, output_bytes=round(op.output_bytes * factor)) if kept and number < last else op
        for number, (op, kept) in enumerate(zip(costs.forward, costs.needed, strict=True))
    )
    return msgspec.structs.replace(costs, forward=forward)


def recomputed(costs: LayerCosts) -> LayerCosts:
    """The layer under full recomputation: it keeps its input only, and its backward pass runs the forward one again."""
    count = len(costs.forward)
    again = tuple(_again(op) for op in costs.forward)
    backward = tuple(
        msgspec.structs.replace(
            op,
            forward_inputs=(),
            backward_inputs=(*op.forward_inputs, *(count + source for source in op.backward_inputs)),
        )
        for op in costs.backward
    )
    return msgspec.structs.replace(costs, backward=(*again, *backward))


def _again(op: ForwardOp) -> BackwardOp:
    return BackwardOp(
        name=f"{op.name}, again",
        time_us=op.time_us,
        output_bytes=op.output_bytes,
        backward_inputs=op.inputs,
        reads_input=op.reads_input,
        comm=op.comm,
        op_class=op.op_class,
    )


def with_update(graph: OpGraph, time_us: int) -> OpGraph:
    """The graph of a step that ends in the optimizer's, which needs no more than what is there at all times."""
    update = Op(name="update", phase="optimizer", time_us=time_us)
    always = sum(tensor.bytes for tensor in graph.tensors if tensor.born is None)
    layers = None if graph.layer_of_op is None else (*graph.layer_of_op, None)
    return msgspec.structs.replace(
        graph, ops=(*graph.ops, update), memory_bytes=(*graph.memory_bytes, always), layer_of_op=layers
    )


def resized(shape: ModelShape, sizes: Mapping[str, int]) -> ModelShape:
    """The shape with other sizes; a new `hidden` keeps the heads' width, and the MLP's in proportion."""
    changes = dict(sizes)
    if "hidden" in changes:
        hidden, width = changes["hidden"], shape.hidden // shape.heads
        changes.setdefault("ffn", hidden * shape.ffn // shape.hidden)
        changes.setdefault("heads", hidden // width)
        changes.setdefault("kv_heads", changes["heads"] * shape.kv_heads // shape.heads)
    return msgspec.structs.replace(shape, **changes)
