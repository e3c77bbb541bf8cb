"""What outlives a step, as what may leave it: states wait for the optimizer, parameters for the backward pass."""

from msgspec.structs import replace

from solvers.ir.graph import OpGraph, Tensor


def residents_leaving(graph: OpGraph, op: int) -> OpGraph:
    """The same step as if its layers made its parameters, and `op` used each of the optimizer's states.

    So a planner of swaps may send parameters away between their last forward and their first backward use, and states
    after that op. States that the optimizer uses earlier stay.
    """
    return replace(graph, tensors=tuple(_leaving(tensor, op) for tensor in graph.tensors))


def _leaving(tensor: Tensor, op: int) -> Tensor:
    if tensor.kind == "parameter":
        return replace(tensor, kind="other")
    waits = tensor.kind == "optimizer" and tensor.born is None and bool(tensor.uses) and min(tensor.uses) > op + 1
    return replace(tensor, kind="other", uses=(op, *tensor.uses)) if waits else tensor
