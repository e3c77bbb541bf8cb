"""From a graph and a hardware file to a swap problem: which tensors may leave, over which link."""

import math

from solvers.ir.errors import InvalidProblem
from solvers.ir.graph import OpGraph, Tensor
from solvers.ir.hardware import HOST, Hardware
from solvers.ir.swap import SwapLink, SwapOp, SwapProblem, SwapTensor

LEAST_TENSOR_BYTES = 4096
"""Smaller tensors free nothing worth a transfer's latency (SmartSwap §4.3)."""


def make_swap_problem(
    graph: OpGraph,
    hardware: Hardware,
    budget_bytes: int | None = None,
    device: str | None = None,
    least_tensor_bytes: int = LEAST_TENSOR_BYTES,
) -> SwapProblem:
    """The swap problem of one step; problem ops are the graph's ops, index by index.

    Candidates are the activations with a gap between a forward and a backward use. `budget_bytes` is the device's
    memory unless given. The link is the pair of directions between `device` (the first one unless named) and the host.
    """
    budget = hardware.device(device).memory_bytes if budget_bytes is None else budget_bytes
    tensors = [found for found in (_candidate(graph, tensor) for tensor in graph.tensors) if found is not None]
    return SwapProblem(
        name=graph.name,
        budget_bytes=budget,
        ops=tuple(SwapOp(name=op.name, time_us=max(1, op.time_us), phase=op.phase) for op in graph.ops),
        memory_bytes=graph.memory_bytes,
        tensors=tuple(tensor for tensor in tensors if tensor.bytes >= least_tensor_bytes),
        link=swap_link(hardware, device),
    )


def swap_link(hardware: Hardware, device: str | None = None) -> SwapLink:
    """The host link of a device as two lanes; half duplex cannot be stated in this kind and is refused."""
    name = hardware.device(device).name
    out, back = hardware.link(name, HOST), hardware.link(HOST, name)
    if out is back and out.duplex == "half":
        raise InvalidProblem(
            f"the link between {name!r} and the host is half duplex, which the swap kind cannot state: "
            "give each direction as a simplex link"
        )
    latency = math.ceil(max(out.latency_us, back.latency_us))
    return SwapLink(out_bytes_per_s=out.bytes_per_s, in_bytes_per_s=back.bytes_per_s, latency_us=latency)


def _candidate(graph: OpGraph, tensor: Tensor) -> SwapTensor | None:
    """A tensor's last forward and first backward use; None where it is no activation that waits between the two."""
    if tensor.kind not in ("activation", "other") or tensor.bytes == 0:
        return None
    touched = sorted({*tensor.uses, *(() if tensor.born is None else (tensor.born,))})
    forward = [op for op in touched if graph.ops[op].phase == "forward"]
    backward = [op for op in touched if graph.ops[op].phase != "forward"]
    if not forward or not backward or forward[-1] + 1 >= backward[0]:
        return None
    return SwapTensor(id=tensor.id, bytes=tensor.bytes, last_forward_use=forward[-1], first_backward_use=backward[0])
