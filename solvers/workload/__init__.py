"""From a model's shape and a cluster to operators, bytes and microseconds, by formulas and a roofline (README.md)."""

from solvers.workload.costs import BackwardOp, ForwardOp, LayerCosts
from solvers.workload.links import (
    all_gather_us,
    all_reduce_us,
    bus_bytes_per_s,
    p2p_us,
    reduce_scatter_us,
    tensor_group,
)
from solvers.workload.megatron import megatron_layer
from solvers.workload.shape import ModelShape, Parallelism

__all__ = [
    "BackwardOp",
    "ForwardOp",
    "LayerCosts",
    "ModelShape",
    "Parallelism",
    "all_gather_us",
    "all_reduce_us",
    "bus_bytes_per_s",
    "megatron_layer",
    "p2p_us",
    "reduce_scatter_us",
    "tensor_group",
]
