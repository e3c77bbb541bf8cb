"""From a measured training step to a replan problem: what the paper's profiler gives its planner (Chameleon §IV)."""

from dataclasses import dataclass

from solvers.ir.fields import require
from solvers.ir.graph import OpGraph
from solvers.ir.hardware import Hardware
from solvers.ir.replan import ReplanProblem
from solvers.workload.parts import measured_parts


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """The nodes that train: how many, and the rate between two of them, for messages and for rings.

    `data_parallel` pipelines of `max_depth` stages at most (None: as many as nodes and layers allow). A node has
    `budget_bytes`, or the memory of the hardware's `device`.
    """

    count: int
    bytes_per_s: int
    data_parallel: int | None = None
    max_depth: int | None = None
    device: str | None = None
    budget_bytes: int | None = None


def problem_from_graph(
    graph: OpGraph,
    hardware: Hardware,
    nodes: Nodes,
    microbatches: int,
) -> ReplanProblem:
    """The problem of training the measured model on such nodes, `microbatches` such steps at a time.

    The graph is a step of one microbatch. A layer's times and bytes are means over all layers; what whole microseconds
    leave over falls to the last stage. The embedding's activations are static memory, as often as they can be in
    flight, and the head's once. Rings sum gradients of `data_parallel` nodes, at least two, because one pipeline may
    become several. A node's memory counts less what the measured peak exceeds all of F8 by: what single ops work in.
    The optimizer's time is in no term of the problem. Raises `InvalidInput` where no layers are found.
    """
    bytes_per_s = nodes.bytes_per_s
    require(bytes_per_s >= 1, f"bytes_per_s is {bytes_per_s}: give a rate of at least 1")
    parts = measured_parts(graph)
    count, states, activations = parts.count, parts.state_bytes, parts.activation_bytes
    forward, backward = parts.forward_us, parts.backward_us
    depth = min(count, nodes.count) if nodes.max_depth is None else nodes.max_depth
    replicas = max(2, nodes.data_parallel or 1)
    memory = hardware.device(nodes.device).memory_bytes
    budget = memory if nodes.budget_bytes is None else nodes.budget_bytes
    return ReplanProblem(
        name=graph.name,
        nodes=nodes.count,
        microbatches=microbatches,
        layers=count,
        forward_us=forward.layers // count,
        backward_us=backward.layers // count,
        first_extra_us=(forward.first, backward.first),
        last_extra_us=(forward.last + forward.layers % count, backward.last + backward.layers % count),
        p2p_us=_transfer_us(parts.message_bytes, bytes_per_s),
        sync_us=_ring_us(max(parts.parameter_bytes.first, parts.parameter_bytes.last), replicas, bytes_per_s),
        memory_bytes=max(0, budget - max(0, parts.peak_bytes - states.total - activations.total)),
        layer_static_bytes=-(-states.layers // count),
        layer_activation_bytes=-(-activations.layers // count),
        first_static_bytes=states.first + min(depth, microbatches) * activations.first,
        last_static_bytes=states.last + activations.last,
        max_depth=depth,
        data_parallel=nodes.data_parallel,
        layer_sync_us=_ring_us(-(-parts.parameter_bytes.layers // count), replicas, bytes_per_s),
    )


def _transfer_us(size_bytes: int, bytes_per_s: int) -> int:
    return -(-size_bytes * 10**6 // bytes_per_s)


def _ring_us(size_bytes: int, replicas: int, bytes_per_s: int) -> int:
    """All-reduce in a ring: 2(t − 1)/t of the bytes pass each node."""
    return _transfer_us(2 * (replicas - 1) * size_bytes, replicas * bytes_per_s)
