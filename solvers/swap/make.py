"""From a graph and a hardware file to a swap problem: which tensors may leave, over which link."""

import math

from solvers.ir.errors import InvalidProblem
from solvers.ir.graph import Launch, Op, OpGraph, Tensor
from solvers.ir.hardware import HOST, Hardware
from solvers.ir.swap import SwapLink, SwapOp, SwapProblem, SwapTensor
from solvers.timeline.gaps import is_gap

LEAST_TENSOR_BYTES = 4096
"""Smaller tensors free nothing worth a transfer's latency (SmartSwap §4.3)."""


def make_swap_problem(
    graph: OpGraph,
    hardware: Hardware,
    budget_bytes: int | None = None,
    device: str | None = None,
    least_tensor_bytes: int = LEAST_TENSOR_BYTES,
    gaps: bool = False,
) -> SwapProblem:
    """The swap problem of one step; problem ops are the graph's ops, index by index.

    Candidates are the activations with a gap between a forward and a backward use. `budget_bytes` is the device's
    memory unless given. The link is the pair of directions between `device` (the first one unless named) and the host.
    Where the graph knows what launching its ops costs, the problem does too: a transfer costs the host one launch of
    the device, and its time is counted in nanoseconds. With `gaps` the candidates are those of a graph with its gaps
    apart (`solvers.timeline.gaps`) instead, in whatever phases.
    """
    budget = hardware.device(device).memory_bytes if budget_bytes is None else budget_bytes
    launch_us = _transfer_launch_us(graph, hardware, device)
    candidate = _gap if gaps else _candidate
    tensors = [found for found in (candidate(graph, tensor) for tensor in graph.tensors) if found is not None]
    return SwapProblem(
        name=graph.name,
        budget_bytes=budget,
        ops=tuple(_swap_op(op, launched=launch_us is not None) for op in graph.ops),
        memory_bytes=graph.memory_bytes,
        tensors=tuple(tensor for tensor in tensors if tensor.bytes >= least_tensor_bytes),
        link=swap_link(hardware, device, exact=launch_us is not None),
        launch_us=launch_us or 0,
    )


def _transfer_launch_us(graph: OpGraph, hardware: Hardware, device: str | None) -> int | None:
    """What a transfer takes of the host; None where the graph does not know launches, or they cost nothing at all."""
    launches = [op.launch for op in graph.ops if isinstance(op.launch, Launch)]
    if len(launches) < len(graph.ops):
        return None
    launch_us = round(hardware.device(device).launch_us)
    return launch_us if launch_us or any(launch.host_us for launch in launches) else None


def _swap_op(op: Op, launched: bool) -> SwapOp:
    if not launched or not isinstance(op.launch, Launch):
        return SwapOp(name=op.name, time_us=max(1, op.time_us), phase=op.phase)
    return SwapOp(
        name=op.name,
        time_us=op.launch.device_us,
        phase=op.phase,
        launch_us=op.launch.host_us,
        tail_us=op.launch.tail_us,
        host_waits=op.launch.host_waits,
    )


def swap_link(hardware: Hardware, device: str | None = None, exact: bool = False) -> SwapLink:
    """The host link of a device as two lanes; half duplex cannot be stated in this kind and is refused.

    `exact` counts transfers in nanoseconds.
    """
    name = hardware.device(device).name
    out, back = hardware.link(name, HOST), hardware.link(HOST, name)
    if out is back and out.duplex == "half":
        raise InvalidProblem(
            f"the link between {name!r} and the host is half duplex, which the swap kind cannot state: "
            "give each direction as a simplex link"
        )
    latency_us = max(out.latency_us, back.latency_us)
    latency_ns = math.ceil(latency_us * 1000) if exact else None
    return SwapLink(
        out_bytes_per_s=out.bytes_per_s,
        in_bytes_per_s=back.bytes_per_s,
        latency_us=math.ceil(latency_us) if latency_ns is None else -(-latency_ns // 1000),
        latency_ns=latency_ns,
    )


def _candidate(graph: OpGraph, tensor: Tensor) -> SwapTensor | None:
    """A tensor's last forward and first backward use; None where it is no activation that waits between the two."""
    if tensor.kind not in ("activation", "other") or tensor.bytes == 0:
        return None
    touched = sorted({*tensor.uses, *(() if tensor.born is None else (tensor.born,))})
    if not _can_be_found(graph, tensor, touched):
        return None
    forward = [op for op in touched if graph.ops[op].phase == "forward"]
    backward = [op for op in touched if graph.ops[op].phase != "forward"]
    if not forward or not backward or forward[-1] + 1 >= backward[0]:
        return None
    size = graph.block_bytes(tensor)  # what leaving frees; its copy moves some bytes less
    return SwapTensor(id=tensor.id, bytes=size, last_forward_use=forward[-1], first_backward_use=backward[0])


def _gap(graph: OpGraph, tensor: Tensor) -> SwapTensor | None:
    """A stand-in's two uses, as those between which it may be absent; None for tensors themselves."""
    if not is_gap(tensor.id) or tensor.bytes == 0:
        return None
    first, last = tensor.uses
    return SwapTensor(id=tensor.id, bytes=graph.block_bytes(tensor), last_forward_use=first, first_backward_use=last)


def _can_be_found(graph: OpGraph, tensor: Tensor, touched: list[int]) -> bool:
    """Whether an executor can tell the tensor at its last forward use, after which it leaves.

    Not where only the op that made it knows it, does not return it, and the profile does not say where it is (`inner`).
    """
    forward = [op for op in touched if graph.ops[op].phase == "forward"]
    if not forward or forward[-1] != tensor.born or tensor.inner is not None:
        return True
    op = graph.ops[forward[-1]]
    return not (op.inputs or op.outputs) or tensor.id in op.inputs or tensor.id in op.outputs
