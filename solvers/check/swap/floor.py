"""What no `swap` decision ends before: the bytes that must be away cross the link, out before an op, back behind it."""

import math
from collections.abc import Callable
from itertools import accumulate

import numpy as np

from solvers.check.swap.judge import base_us, least_budget_bytes
from solvers.ir.swap import SwapProblem

MOST_MOMENTS = 12_000
"""Of more moments some are passed over, evenly: each looks back at all before it."""
MARGIN = 1e-10
"""More than rounding can have added to a sum of so many floats, relative to it."""


def floor_us(problem: SwapProblem) -> float:
    """A time in whole µs that no valid decision ends before, the base at least; infinite where nothing is valid.

    At each op t, in order, for each op q before it (a, b: the uses of a tensor; d: what an op is short of):

    - while t runs, d_t bytes are away that are not read before t has run; those of tensors with a < q, b > t may have
      left before q ended, the others left behind it;
    - while q ran, d_q bytes were away; those with a < q, b > t may be away still when t starts, the others have come
      back, behind q.

    Transfers of a direction follow each other, at the rate at most at which the fastest of them travels.
    """
    if least_budget_bytes(problem) > problem.budget_bytes:
        return math.inf
    moments = _moments(problem)
    if not moments:
        return float(base_us(problem))
    ends = np.array(list(accumulate((op.time_us for op in problem.ops), initial=0)), dtype=np.float64)
    short = np.maximum(0.0, np.array(problem.memory_bytes, dtype=np.float64)[moments] - problem.budget_bytes)
    away = _Away(problem, moments)
    out, back = _bytes_a_us(problem.link.out_ticks, problem), _bytes_a_us(problem.link.in_ticks, problem)
    unhindered, ended, now = _ends_of_base(problem), np.zeros(len(moments)), 0.0
    for place, op in enumerate(moments):
        now = max(now + ends[op] - (ends[moments[place - 1] + 1] if place else 0.0), unhindered[op])
        lasting = away.before(place)
        if place and short[place] > 0:
            now = max(now, _moved(ended[:place], short[place] - lasting, out))
        if place:
            now = max(now, _moved(ended[:place], short[:place] - lasting, back))
        now = ended[place] = max(now + problem.ops[op].time_us, unhindered[op + 1])
    now += ends[-1] - ends[moments[-1] + 1]
    return float(max(base_us(problem), math.ceil(now * (1 - MARGIN))))


def _ends_of_base(problem: SwapProblem) -> list[int]:
    """When op j − 1 ends in a step without a budget, at index j: it never ends earlier, whatever is swapped."""
    ends, host = [0], 0
    for op in problem.ops:
        host += op.launch_us
        ends.append(max(ends[-1] + op.time_us, host + op.after_launch_us))
        host = max(host, ends[-1]) if op.host_waits else host
    return ends


def _moments(problem: SwapProblem) -> list[int]:
    """The ops that are short of memory and the uses of tensors, some of them where there are too many."""
    busy = {op for op, memory in enumerate(problem.memory_bytes) if memory > problem.budget_bytes}
    if not busy:
        return []
    used = {use for tensor in problem.tensors for use in (tensor.last_forward_use, tensor.first_backward_use)}
    moments = sorted(busy | used)
    step = -(-len(moments) // MOST_MOMENTS)
    peak = max(busy, key=lambda op: problem.memory_bytes[op])
    return sorted({peak, *moments[::step]})


class _Away:
    """For each moment, the bytes of tensors last used before it and next read behind the moment looked at."""

    def __init__(self, problem: SwapProblem, moments: list[int]) -> None:
        size = np.array([tensor.bytes for tensor in problem.tensors], dtype=np.float64)
        left = np.searchsorted(moments, [tensor.last_forward_use for tensor in problem.tensors], side="right")
        self.read: dict[int, list[int]] = {}
        for index, tensor in enumerate(problem.tensors):
            self.read.setdefault(int(np.searchsorted(moments, tensor.first_backward_use)), []).append(index)
        self.size, self.left = size, left
        self.bytes = np.cumsum(np.bincount(left, weights=size, minlength=len(moments) + 1))

    def before(self, place: int) -> np.ndarray:
        """The bytes at all moments before this one; asked for in order of time."""
        for index in self.read.get(place, ()):
            self.bytes[self.left[index] :] -= self.size[index]
        return self.bytes[:place]


def _moved(since: np.ndarray, amount: np.ndarray, bytes_a_us: float) -> float:
    """When the last of these amounts has moved, each from its own time on."""
    return float(np.max(np.where(amount > 0, since + amount / bytes_a_us, 0.0)))


def _bytes_a_us(ticks: Callable[[int], int], problem: SwapProblem) -> float:
    times = [(tensor.bytes, ticks(tensor.bytes)) for tensor in problem.tensors]
    return max((size * problem.link.ticks / time for size, time in times if time), default=math.inf)
