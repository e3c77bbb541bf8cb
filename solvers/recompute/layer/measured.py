"""From a measured graph to the recomputation problem of the layers that it repeats."""

from solvers.ir.graph import OpGraph
from solvers.ir.hardware import Hardware
from solvers.ir.recompute import RecomputeLayerProblem
from solvers.recompute.layer.make import layer_problem
from solvers.workload import layer_from_graph, measured_layers, measured_static_bytes


def make_layer_problem(
    graph: OpGraph, hardware: Hardware, budget_bytes: int | None = None, device: str | None = None
) -> RecomputeLayerProblem:
    """The problem of the layers that a measured step repeats; `budget_bytes` is the device's memory unless given.

    A step that was measured alone has one microbatch in flight and no stage behind it. Parameters, optimizer states
    and what the other ops keep are static. Raises `InvalidInput` where nothing repeats.
    """
    budget = hardware.device(device).memory_bytes if budget_bytes is None else budget_bytes
    return layer_problem(
        layer_from_graph(graph),
        layers=measured_layers(graph),
        inflight_microbatches=1,
        last_stage=True,
        budget_bytes=budget,
        static_bytes=measured_static_bytes(graph),
    )
