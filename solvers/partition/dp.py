"""`dp`: the exact partition by dynamic programming (README, (D))."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from solvers.ir.names import unknown
from solvers.ir.partition import PartitionPlan, PartitionProblem
from solvers.ir.solution import Call, Limits, Solution, Watch
from solvers.partition.answers import why_infeasible, with_plan
from solvers.partition.balanced import even_split
from solvers.partition.table import UNFIT, IntArray, cost_array, costs_of, restricted

Ties = Literal["even", "total"]
Table = npt.NDArray[Any]
BLOCK = 1 << 18
"""Entries of the recursion that are computed at once, between two looks at the clock."""


class _Stopped(Exception):
    """The time is up, or the watch has said stop."""


@dataclass(frozen=True)
class Dp:
    """The least possible largest stage cost, exactly: OPTIMAL, or INFEASIBLE with the reason.

    `ties`: of all optimal partitions take the one nearest to even (`even`), or with the smallest sum of stage costs
    (`total`); of equals the one with more layers on earlier stages. Where the time ends first, the even partition
    answers with the bound max over stages of the cheapest count.
    """

    ties: Ties = "even"
    NAME = "dp"

    def __post_init__(self) -> None:
        """Refuse an unknown way to break ties."""
        if self.ties not in get_args(Ties):
            raise unknown("choice for ties", self.ties, get_args(Ties))

    def solve(self, problem: PartitionProblem, limits: Limits, watch: Watch | None = None) -> Solution[PartitionPlan]:
        """The optimum in O(P·L²): a millisecond for 16 stages of 96 layers."""
        call = Call(self.NAME, limits)
        costs = cost_array(problem)
        bound = _quick_bound(costs)

        def pause() -> None:
            elapsed = call.elapsed_s
            stopped = watch is not None and watch(None, None if bound is None else float(bound), elapsed)
            if stopped or elapsed > limits.time_s:
                raise _Stopped("its watch" if stopped else f"the time limit of {limits.time_s} s")

        try:
            layers = best_split(costs, self.ties, pause)
        except _Stopped as stopped:
            return _stopped_early(call, costs, bound, str(stopped))
        if layers is None:
            reason = why_infeasible(costs)
            assert reason is not None, "the recursion finds every partition that fits"
            return call.infeasible(reason)
        objective = int(costs_of(costs, layers).max())
        return with_plan(call, costs, layers, objective, engine="dynamic programming")


def _quick_bound(costs: IntArray) -> int | None:
    """No stage costs less than its cheapest count; None where one has none."""
    bound = int(costs.min(axis=1).max())
    return bound if bound < UNFIT else None


def _stopped_early(call: Call, costs: IntArray, bound: int | None, by: str) -> Solution[PartitionPlan]:
    """The even partition with the quick bound, where it fits."""
    stages, layers = costs.shape[0], costs.shape[1] - 1
    reason = f"{by} ended the recursion"
    if layers >= stages:
        even = even_split(layers, stages)
        if costs_of(costs, even).max() < UNFIT:
            said = f"{reason}: this is the even partition"
            return with_plan(call, costs, even, bound, engine="dynamic programming", reason=said)
    return call.unknown(f"{reason}, and the even partition does not fit", bound)


def best_split(costs: IntArray, ties: Ties = "even", pause: Callable[[], None] | None = None) -> tuple[int, ...] | None:
    """The layers of each stage that minimise the largest `costs[p, n]` (n = 0…layers, UNFIT where it does not fit).

    None where no partition fits. `pause` is called between blocks of work and may raise to end it.
    """
    costs = restricted(costs)
    stages, layers = costs.shape[0], costs.shape[1] - 1
    if layers < stages:
        return None
    best = int(_tables(costs, np.maximum, pause)[0][-1])
    if best >= UNFIT:
        return None
    weights: Table = costs
    if ties == "even":
        weights = np.broadcast_to((stages * np.arange(layers + 1) - layers) ** 2, costs.shape)
    if int(weights[costs <= best].max()) * stages >= UNFIT:  # sums that int64 may not hold: Python's whole numbers
        weights = weights.astype(object)
    weights = np.where(costs <= best, weights, UNFIT * stages if weights.dtype == object else UNFIT)
    return _trace(_tables(weights, np.add, pause), weights)


def _tables(costs: Table, combine: np.ufunc, pause: Callable[[], None] | None) -> list[Table]:
    """(D) for stages p…P − 1, the last first: `tables[p][k]` is the best of k layers on them.

    tables[p][k] = min over n of combine(costs[p, n], tables[p + 1][k − n]); nothing on no stages.
    """
    stages, layers = costs.shape[0], costs.shape[1] - 1
    most = layers - stages + 1
    unfit = costs[0, 0]
    after = np.full(layers + 1, unfit, dtype=costs.dtype)
    after[0] = 0
    tables = [after]
    for stage in reversed(range(stages)):
        here = np.full(layers + 1, unfit, dtype=costs.dtype)
        least, limit = stages - stage, layers - stage
        # windows[k] holds after[k - n] for n = 1…most; counts below zero are unfit
        padded = np.concatenate((np.full(most, unfit, dtype=costs.dtype), after))[::-1]
        windows = np.lib.stride_tricks.sliding_window_view(padded, most)[::-1]
        step = max(1, BLOCK // most)
        for begin in range(least, limit + 1, step):
            rows = slice(begin, min(begin + step, limit + 1))
            found = combine(windows[rows], costs[stage, None, 1 : most + 1]).min(axis=1)
            here[rows] = np.minimum(found, unfit)
            if pause is not None:
                pause()
        tables.append(here)
        after = here
    return tables[::-1]


def _trace(sums: list[Table], weights: Table) -> tuple[int, ...]:
    """The layers that reach the least sum of weights, lexicographically the last of them."""
    left = weights.shape[1] - 1
    layers = []
    for stage, row in enumerate(weights):
        counts = np.arange(1, left + 1)
        values = row[counts] + sums[stage + 1][left - counts]
        count = int(counts[np.flatnonzero(values <= sums[stage][left])[-1]])
        layers.append(count)
        left -= count
    return tuple(layers)
