"""From which share of an iteration's size on each swap of a schedule is needed (README, Shares)."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from solvers.ir.fields import TensorId
from solvers.ir.graph import OpGraph
from solvers.ir.schedule import Schedule
from solvers.timeline.gaps import is_gap

STAYING = ("parameter", "gradient", "optimizer")
"""Kinds of tensors whose size is the model's, not the batch's."""

_Bytes = npt.NDArray[np.float64]


class _Swap(NamedTuple):
    tensor: TensorId
    bytes: int
    away: slice  # ops during which the tensor is away
    stays: bool  # it is as large in steps of any size


def least_shares(
    graph: OpGraph, schedule: Schedule, budget_bytes: int, staying_bytes: Sequence[int] | None = None
) -> dict[TensorId, float]:
    """For each tensor that a swap schedule sends away, the share of the graph's size from which on it must.

    Sizes of what comes and goes shrink in proportion; `staying_bytes` of each op's memory do not, by default those of
    what the step does not make, and of gradients and states. As the share grows, what is sent away
    next where memory first is short is the largest tensor that is away then: so few copies as possible. Tensors without
    which every op has memory have 1.
    """
    stays, varies = _memory(graph, staying_bytes)
    left = _swaps(graph, schedule)
    found = {swap.tensor: 1.0 for swap in left}
    while left:
        op, share = _first_short(stays, varies, budget_bytes)
        if share >= 1:
            break
        able = [swap for swap in left if swap.away.start <= op < swap.away.stop]
        if not able:
            stays[op] = varies[op] = 0.0  # no swap of the schedule helps there
            continue
        best = max(able, key=lambda swap: (swap.bytes, swap.away.stop - swap.away.start))
        left.remove(best)
        found[best.tensor] = max(share, 0.0)
        (stays if best.stays else varies)[best.away] -= best.bytes
    return found


def swaps_short(
    graph: OpGraph,
    schedule: Schedule,
    budget_bytes: int,
    shares: Mapping[TensorId, float],
    share: float,
    staying_bytes: Sequence[int] | None = None,
) -> int:
    """The least swaps that are left to others than the schedule in a step of that share of the graph's size.

    All leaves that must by `shares`. Where memory is short at ops that follow each other, so many of the step's largest
    tensor go by then as make up for the most that is missing.
    """
    stays, varies = _memory(graph, staying_bytes)
    held = stays + share * varies
    for swap in _swaps(graph, schedule):
        if shares[swap.tensor] <= share:
            held[swap.away] -= swap.bytes if swap.stays else share * swap.bytes
    missing = np.concatenate(([0.0], np.maximum(held - budget_bytes, 0.0), [0.0]))
    begins, ends = (np.flatnonzero((missing[:-1] > 0) != (missing[1:] > 0))[place::2] + 1 for place in (0, 1))
    largest = max((graph.block_bytes(tensor) for tensor in graph.tensors), default=1)
    return sum(math.ceil(missing[begin:end].max() / largest) for begin, end in zip(begins, ends, strict=True))


def _memory(graph: OpGraph, staying_bytes: Sequence[int] | None) -> tuple[_Bytes, _Bytes]:
    """What of each op's memory is there in steps of any size, and what goes with the size."""
    stays = _staying(graph) if staying_bytes is None else np.array(staying_bytes, dtype=np.float64)
    return stays, np.maximum(np.asarray(graph.memory_bytes, dtype=np.float64) - stays, 0.0)


def _staying(graph: OpGraph) -> _Bytes:
    stays = np.full(len(graph.ops), float(min(graph.memory_bytes)))
    for tensor in graph.tensors:
        if tensor.kind in STAYING and tensor.born is not None and not is_gap(tensor.id):
            stays[tensor.born : max((tensor.born, *tensor.uses)) + 1] += graph.block_bytes(tensor)
    return stays


def _first_short(stays: _Bytes, varies: _Bytes, budget_bytes: int) -> tuple[int, float]:
    """The op that is first short of memory as the share grows, and the share beyond which it is."""
    room = budget_bytes - stays
    with np.errstate(divide="ignore"):
        shares = np.where(varies > 0, room / np.maximum(varies, 1e-9), np.where(room < 0, -np.inf, np.inf))
    op = int(np.argmin(shares))
    return op, float(shares[op])


def _swaps(graph: OpGraph, schedule: Schedule) -> list[_Swap]:
    sizes = {tensor.id: graph.block_bytes(tensor) for tensor in graph.tensors}
    outliving = {tensor.id for tensor in graph.tensors if tensor.born is None or tensor.kind in STAYING}
    leaves = {name: action.op for action in schedule.actions if action.do == "swap_out" for name in action.data}
    returns = {name: action.op for action in schedule.actions if action.do == "swap_in" for name in action.data}
    return [
        _Swap(name, sizes[name], slice(op + 1, returns.get(name) or len(graph.ops)), name in outliving)
        for name, op in leaves.items()
        if op is not None
    ]
