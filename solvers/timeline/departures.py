"""How long each swap-out of a schedule may wait before memory is short without it (README, Departures)."""

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from solvers.ir.fields import TensorId
from solvers.ir.graph import OpGraph
from solvers.ir.hardware import HOST, Hardware
from solvers.ir.schedule import Schedule


class CopyTime(NamedTuple):
    """What a copy to the host takes: so long, and so long for each byte."""

    latency_us: float
    byte_us: float

    def us(self, size: int) -> float:
        """Of so many bytes."""
        return self.latency_us + size * self.byte_us


def copy_time(hardware: Hardware) -> CopyTime:
    """From the first device to the host; raises `InvalidInput` where there is no link."""
    link = hardware.link(hardware.device(None).name, HOST)
    return CopyTime(link.latency_us, 1e6 / link.bytes_per_s)


class _Away(NamedTuple):
    tensor: TensorId
    bytes: int
    left: int  # the op after which it leaves
    gone: int  # the op before which its block is free, as the schedule has it,
    back: int  # and that before which it returns


def latest_departures(
    graph: OpGraph, schedule: Schedule, budget_bytes: int, copy_us: Callable[[int], float]
) -> dict[TensorId, int]:
    """For each tensor that a swap schedule sends away, the last op before which its copy may begin.

    Copies go one after the other in the order of the schedule, each takes `copy_us(bytes)`, and ops take their times.
    A tensor has to be gone at the first op that is within the budget only without it, and all before it; one without
    which every op has memory may wait until it would return.
    """
    away = _away(graph, schedule)
    starts = [0.0, *accumulate(float(op.time_us) for op in graph.ops)]
    deadlines = _deadlines(graph, away, budget_bytes)
    found: dict[TensorId, int] = {}
    latest_us = float("inf")
    for swap, deadline in zip(reversed(away), reversed(deadlines), strict=True):
        latest_us = min(latest_us, starts[deadline]) - copy_us(swap.bytes)
        found[swap.tensor] = max(bisect_right(starts, latest_us) - 1, swap.left + 1)
    return found


def _away(graph: OpGraph, schedule: Schedule) -> list[_Away]:
    """In the order in which they leave."""
    sizes = {tensor.id: graph.block_bytes(tensor) for tensor in graph.tensors}
    ops = {
        do: {name: action.op for action in schedule.actions if action.do == do for name in action.data}
        for do in ("swap_out", "release", "swap_in")
    }
    found = []
    for name, left in ops["swap_out"].items():
        if left is not None:
            gone, back = ops["release"].get(name) or left + 1, ops["swap_in"].get(name) or len(graph.ops)
            found.append(_Away(name, sizes[name], left, gone, back))
    return sorted(found, key=lambda swap: swap.left)


def _deadlines(graph: OpGraph, away: list[_Away], budget_bytes: int) -> list[int]:
    """The op before which each has to be gone; those that left before it are gone by then."""
    memory = np.asarray(graph.memory_bytes, dtype=np.int64)
    found = [swap.back for swap in away]
    gone = np.zeros(len(memory), dtype=np.int64)  # if all that left before are gone where the schedule has them gone
    for number, swap in enumerate(away):
        span = slice(swap.gone, swap.back)
        short = np.flatnonzero(memory[span] - gone[span] > budget_bytes)
        if short.size:
            found[number] = swap.gone + int(short[0])
        gone[span] += swap.bytes
    return found
