"""Optimizer states as what may leave a step: they wait from its begin until the optimizer comes."""

from msgspec.structs import replace

from solvers.ir.graph import OpGraph, Tensor


def states_leaving(graph: OpGraph, op: int) -> OpGraph:
    """The same step, as if `op` were the last before the optimizer to use each of its states.

    So a planner of swaps may send them away after that op. Those that the optimizer uses earlier stay as they are.
    """
    return replace(graph, tensors=tuple(_leaving(tensor, op) for tensor in graph.tensors))


def is_state(tensor: Tensor) -> bool:
    """Whether it is the optimizer's, and outlives the step."""
    return tensor.kind == "optimizer" and tensor.born is None


def _leaving(tensor: Tensor, op: int) -> Tensor:
    waits = is_state(tensor) and bool(tensor.uses) and min(tensor.uses) > op + 1
    return replace(tensor, uses=(op, *tensor.uses)) if waits else tensor
