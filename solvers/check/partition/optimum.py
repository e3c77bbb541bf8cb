"""The least slowest stage of a `partition` problem, exactly: bisection over the costs that there are."""

import math

from solvers.check.judge import Range
from solvers.ir.partition import PartitionProblem

MOST_WORK = 10**9
"""Layers² · stages · bisections beyond which the optimum is not looked for."""


def best_us(problem: PartitionProblem, claimed: float | None) -> Range:
    """The optimum, twice; infinite where no decision is valid, (0, ∞) where there is too much to try."""
    costs = sorted({cost for row in problem.cost_us for cost in row[1:] if cost is not None})
    if len(problem.cost_us) * problem.layers**2 * max(1, len(costs).bit_length()) > MOST_WORK:
        return 0.0, math.inf
    low, high = 0, len(costs)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _fits(problem, costs[middle]) else (middle + 1, high)
    best = costs[low] if low < len(costs) else math.inf
    return best, best


def _fits(problem: PartitionProblem, limit: int) -> bool:
    """Whether some decision has no stage above the limit: bit k is set where the first stages can have k layers."""
    reached = 1
    for row in problem.cost_us:
        after = 0
        for count, cost in enumerate(row):
            if count and cost is not None and cost <= limit:
                after |= reached << count
        reached = after & ((2 << problem.layers) - 1)
    return bool(reached >> problem.layers & 1)
