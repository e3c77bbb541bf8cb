"""From a model's shape and a cluster to operators, bytes and microseconds, by formulas and a roofline (README.md)."""

from solvers.timeline.collectives import all_gather_us, all_reduce_us, bus_bytes_per_s, reduce_scatter_us
from solvers.workload.costs import BackwardOp, ForwardOp, LayerCosts
from solvers.workload.graph import live_bytes, stage_graph
from solvers.workload.links import p2p_us, tensor_group
from solvers.workload.measured import layer_from_graph, measured_layers, measured_static_bytes
from solvers.workload.megatron import megatron_layer
from solvers.workload.shape import ModelShape, Parallelism
from solvers.workload.stage import StageExtra, embedding_extra, head_extra, inflight, stage_extras, static_bytes

__all__ = [
    "BackwardOp",
    "ForwardOp",
    "LayerCosts",
    "ModelShape",
    "Parallelism",
    "StageExtra",
    "all_gather_us",
    "all_reduce_us",
    "bus_bytes_per_s",
    "embedding_extra",
    "head_extra",
    "inflight",
    "layer_from_graph",
    "live_bytes",
    "measured_layers",
    "measured_static_bytes",
    "megatron_layer",
    "p2p_us",
    "reduce_scatter_us",
    "stage_extras",
    "stage_graph",
    "static_bytes",
    "tensor_group",
]
