"""`greedy-lynx`: the paper's recomputation-aware partitioning (§5)."""

from dataclasses import dataclass

import numpy as np

from solvers.ir.partition import PartitionPlan, PartitionProblem
from solvers.ir.solution import Call, Limits, Solution, Watch
from solvers.partition.answers import stuck_or_infeasible, with_plan
from solvers.partition.balanced import Remainder, even_split, require_remainder
from solvers.partition.table import UNFIT, IntArray, cost_array, costs_of


@dataclass(frozen=True)
class GreedyLynx:
    """From an even partition, move one layer from the slowest to the fastest stage while the slowest one gets faster.

    As the paper states it: a new partition is adopted if it fits and its longest stage is shorter; the first one that
    is not ends the search. A stage that does not fit counts as the slowest. `initial` says which stages start with one
    layer more (`even_split`). FEASIBLE with bound None; UNKNOWN where it never fits but another partition does.
    """

    initial: Remainder = "middle"
    NAME = "greedy-lynx"

    def __post_init__(self) -> None:
        """Refuse an unknown initial partition."""
        require_remainder("initial", self.initial)

    def solve(self, problem: PartitionProblem, limits: Limits, watch: Watch | None = None) -> Solution[PartitionPlan]:
        """A partition in microseconds a move; it ends at the time limit or at the watch's word with what it has."""
        call = Call(self.NAME, limits)
        costs, reason = cost_array(problem), None
        layers = even_split(problem.layers, problem.stages, self.initial)
        while (moved := _moved(costs, layers)) is not None:
            layers = moved
            elapsed = call.elapsed_s
            stopped = watch is not None and watch(float(costs_of(costs, layers).max()), None, elapsed)
            if stopped or elapsed > limits.time_s:
                reason = f"{'its watch' if stopped else f'the time limit of {limits.time_s} s'} ended the search"
                break
        if costs_of(costs, layers).max() >= UNFIT:
            return stuck_or_infeasible(call, costs, layers)
        return with_plan(call, costs, layers, reason=reason)


def _moved(costs: IntArray, layers: tuple[int, ...]) -> tuple[int, ...] | None:
    """Step (4): one layer from the slowest to the fastest stage (of equals the first); None where nothing is gained."""
    now = costs_of(costs, layers)
    slowest, fastest = int(np.argmax(now)), int(np.argmin(now))
    changed = list(layers)
    changed[slowest] -= 1
    changed[fastest] += 1
    if slowest == fastest or changed[slowest] < 1 or costs_of(costs, changed).max() >= now.max():
        return None
    return tuple(changed)
