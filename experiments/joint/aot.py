"""A step as AOTAutograd traces it: the joint graph as a problem of ours, and what torch's partitioner saves of it.

Nothing is computed: tensors are fake. Times are a roofline of one device, sizes those of the outputs' storages.
"""

import copy
import operator
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
import torch._functorch.config as functorch
from torch import fx, nn
from torch._functorch.aot_autograd import aot_function
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import flop_registry

from solvers.ir.hardware import Hardware
from solvers.ir.joint import JointOp, JointProblem
from solvers.ir.policy import Policy
from solvers.swap.make import swap_link

Build = Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]
"""A model whose forward pass returns its loss, and what it takes."""


class _Traced(Exception):
    """Ends a trace once the joint graph is there."""


@dataclass(frozen=True)
class JointGraph:
    """The forward and backward pass of a step in one graph; `outputs` of it are the forward pass's."""

    name: str
    module: fx.GraphModule
    outputs: int


def traced(name: str, build: Build) -> JointGraph:
    """The joint graph of a model's loss, parameters and buffers being inputs."""
    found: list[JointGraph] = []

    def partition(module: fx.GraphModule, _: Any, *, num_fwd_outputs: int, **others: Any) -> Any:
        found.append(JointGraph(name, module, num_fwd_outputs))
        raise _Traced

    with FakeTensorMode(allow_non_fake_inputs=True):
        model, batch = build()
        state = {**dict(model.named_parameters()), **dict(model.named_buffers())}

        def loss(values: dict[str, torch.Tensor], *batch: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = torch.func.functional_call(model, values, batch)
            return result

        with suppress(_Traced):
            aot_function(loss, fw_compiler=lambda graph, _: graph, partition_fn=partition)(state, *batch)
    return found[0]


class AotProblem:
    """The joint graph as a problem: an op for each node that makes a storage; views stand for what they look at."""

    def __init__(self, graph: JointGraph, machine: Hardware) -> None:
        self.graph, self.machine = graph, machine
        self.op_of: dict[fx.Node, int] = {}
        self.ops: list[JointOp] = []
        self.static = 0
        results = _results(graph.module.graph)
        self.forward = _needed(results[: graph.outputs])
        held = {_base(node) for node in results[graph.outputs :] if isinstance(node, fx.Node)}
        nodes = [node for node in graph.module.graph.nodes if node.op != "output"]
        for node in [*(n for n in nodes if n in self.forward), *(n for n in nodes if n not in self.forward)]:
            self._add(node, node in held)
        self.backward = sum(op.name in {node.name for node in self.forward} for op in self.ops)

    def problem(self, budget_bytes: int) -> JointProblem:
        """The problem at a budget: parameters, batch and gradients are static."""
        return JointProblem(
            name=self.graph.name,
            budget_bytes=budget_bytes,
            static_bytes=self.static,
            ops=tuple(self.ops),
            link=swap_link(self.machine),
        )

    def policy(self, saved: Sequence[str], name: str) -> Policy:
        """What the partitioner saves, by nodes' names."""
        by_name = {node.name: op for node, op in self.op_of.items()}
        kept = sorted({by_name[one] for one in saved if one in by_name and by_name[one] < self.backward})
        return Policy(name=name, saved=tuple(kept), recomputed=() if kept else ("*",), backward_from=self.backward)

    def _add(self, node: fx.Node, held: bool) -> None:
        size = _bytes(node)
        if node.op == "placeholder":
            self.static += size
            return
        reads = tuple(sorted({self.op_of[source] for source in node.all_input_nodes if source in self.op_of}))
        if size == 0 or _is_view(node):
            if reads:
                self.op_of[node] = reads[0]
            return
        if held:  # a gradient: there from the start of the step on
            self.static += size
        self.op_of[node] = len(self.ops)
        self.ops.append(
            JointOp(
                name=node.name,
                time_us=self._time_us(node, size),
                output_bytes=0 if held else size,
                inputs=reads,
                comm=False,
            )
        )

    def _time_us(self, node: fx.Node, size: int) -> int:
        device = self.machine.device()
        flops = _flops(node)
        moved = size + sum(map(_bytes, node.all_input_nodes))
        kind = "matmul" if flops else "elementwise"
        rate = device.flops_per_s["float32"]
        seconds = max(flops / rate / device.reached(kind), moved / device.bytes_per_s / device.reached("elementwise"))
        return max(1, round(1e6 * seconds))


def _results(graph: fx.Graph) -> Sequence[Any]:
    found: Sequence[Any] = next(iter(reversed(graph.nodes))).args[0]
    return found


def _needed(results: Sequence[Any]) -> set[fx.Node]:
    """What the forward pass computes."""
    found: set[fx.Node] = set()
    stack = [node for node in results if isinstance(node, fx.Node)]
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += node.all_input_nodes
    return found


def _tensors(node: fx.Node) -> list[torch.Tensor]:
    value = node.meta.get("val")
    return [one for one in (value if isinstance(value, list | tuple) else [value]) if isinstance(one, torch.Tensor)]


def _bytes(node: fx.Node) -> int:
    return sum(one.numel() * one.element_size() for one in _tensors(node))


def _is_view(node: fx.Node) -> bool:
    """Whether the result is another's memory: a view, or a part of a result that counts whole."""
    if node.target is operator.getitem:
        return True
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and (
        target.is_view or target.overloadpacket is torch.ops.aten._unsafe_view
    )


def _base(node: fx.Node) -> fx.Node:
    """The node whose memory a result is."""
    while _is_view(node) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def _flops(node: fx.Node) -> int:
    packet = getattr(node.target, "overloadpacket", None)
    counted = None if packet is None else flop_registry.get(packet)
    if counted is None:
        return 0
    arguments, names = fx.map_arg((node.args, node.kwargs), lambda one: one.meta["val"])
    return int(counted(*arguments, **names, out_val=node.meta["val"]))


def partitioned(problem: AotProblem, solver: str, fraction: float) -> tuple[Policy, float]:
    """The policy of torch's own partitioner under an activation memory budget, and the seconds that it took."""
    graph = problem.graph
    module = copy.deepcopy(graph.module)
    began = time.perf_counter()
    with functorch.patch(activation_memory_budget=fraction, activation_memory_budget_solver=solver):
        forward, _ = min_cut_rematerialization_partition(module, (), num_fwd_outputs=graph.outputs)
    saved = [node.name for node in _results(forward.graph)[graph.outputs :] if isinstance(node, fx.Node)]
    return problem.policy(saved, f"partitioner, {solver}, budget {fraction:g}"), time.perf_counter() - began
