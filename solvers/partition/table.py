"""The cost table of a partition problem as an array, and problems from tables."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from solvers.ir.errors import InvalidInput
from solvers.ir.partition import PartitionProblem

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
UNFIT = 1 << 60
"""Stands for null in arrays: above every cost (at most 2⁵³), and the sum of two is still an int64."""


def cost_array(problem: PartitionProblem) -> IntArray:
    """`cost[p, n]`; UNFIT where n layers do not fit, and for n = 0 and n > L − P + 1, which no partition has."""
    rows = [[UNFIT if cost is None else cost for cost in row] for row in problem.cost_us]
    return restricted(np.array(rows, dtype=np.int64))


def restricted(costs: IntArray) -> IntArray:
    """A copy in which the layer counts that no partition can have are UNFIT."""
    stages, layers = costs.shape[0], costs.shape[1] - 1
    costs = costs.copy()
    costs[:, 0] = UNFIT
    costs[:, max(0, layers - stages + 1) + 1 :] = UNFIT
    return costs


def partition_problem(name: str, costs: Sequence[Sequence[int | None]]) -> PartitionProblem:
    """The problem of a table `costs[p][n]`, n = 0…layers, in whole µs; None where n layers do not fit stage p.

    What stands at n = 0 is never asked for and may be anything. Raises `InvalidInput` where rows differ in length.
    """
    lengths = {len(row) for row in costs}
    if len(lengths) != 1 or 1 in lengths or 0 in lengths:
        raise InvalidInput(f"the rows of costs have {sorted(lengths)} entries: give each stage one for 0…layers")
    table = tuple((None, *(None if cost is None else int(cost) for cost in row[1:])) for row in costs)
    return PartitionProblem(name=name, stages=len(costs), layers=lengths.pop() - 1, cost_us=table)


def problem_of_array(name: str, costs: IntArray) -> PartitionProblem:
    """The problem of an array in which UNFIT (or more) stands for what does not fit."""
    return partition_problem(name, [[None if cost >= UNFIT else cost for cost in row] for row in costs.tolist()])


def costs_of(costs: IntArray, layers: Sequence[int]) -> IntArray:
    """Each stage's cost under a partition; UNFIT where it does not fit."""
    return costs[np.arange(len(layers)), np.array(layers, dtype=np.int64)]
