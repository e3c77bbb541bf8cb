"""Whether memory holds any set of pipelines at all, and how much of it a node needs (README, proof 6)."""

from functools import lru_cache

import msgspec
import numpy as np

from solvers.ir.replan import ReplanProblem
from solvers.replan.estimate.rounds import IntArray
from solvers.replan.even_placements import KEPT_MODELS, model_of
from solvers.replan.knapsack import counted, fill


def holds(problem: ReplanProblem) -> bool:
    """Whether some pipelines on the nodes alive count all microbatches within the memory of each stage."""
    if problem.nodes < 1:
        return False
    worth = _most_microbatches(problem)
    return counted(worth, fill(worth, problem.nodes)) >= problem.microbatches


def least_memory_bytes(problem: ReplanProblem) -> int:
    """The least memory of a node with which `holds` is true, every other figure as it stands."""
    low, high = 0, problem.first_static_bytes + problem.last_static_bytes
    high += problem.layers * (
        problem.layer_static_bytes + min(problem.max_depth, problem.layers) * problem.layer_activation_bytes
    )
    while low < high:
        middle = (low + high) // 2
        if holds(msgspec.structs.replace(problem, memory_bytes=middle)):
            high = middle
        else:
            low = middle + 1
    return low


def _most_microbatches(problem: ReplanProblem) -> dict[int, int]:
    """For each depth, with how many microbatches all layers fit; from P on, more of them need no more memory."""
    depths = np.arange(1, min(problem.max_depth, problem.nodes, problem.layers) + 1)
    counts = np.arange(1, min(int(depths[-1]), problem.microbatches) + 1)
    each = problem.layer_static_bytes + np.minimum(depths[:, None], counts) * problem.layer_activation_bytes
    inner, first = _rooms(problem, each, 0), _rooms(problem, each, problem.first_static_bytes)
    inner[0] = _rooms(problem, each[0], problem.last_static_bytes)  # row k − 1: the stage that k − 1 others follow
    only = _rooms(problem, each[0], problem.first_static_bytes + problem.last_static_bytes)
    before = np.cumsum(inner, axis=0) - inner + first
    before[0] = only
    narrowest = np.minimum(np.minimum.accumulate(inner, axis=0), first)
    narrowest[0] = only
    most = ((narrowest >= 1) & (before >= problem.layers)).sum(axis=1)
    most = np.where(most >= np.minimum(depths, problem.microbatches), problem.microbatches, most)
    return dict(zip(depths.tolist(), most.tolist(), strict=True))


def _rooms(problem: ReplanProblem, each: IntArray, held: int) -> IntArray:
    """The layers of `each` bytes that a node has room for beside the bytes held, up to all of them."""
    free = problem.memory_bytes - held
    if free < 0:
        return np.zeros_like(each)
    return np.where(each > 0, np.minimum(free // np.maximum(each, 1), problem.layers), problem.layers)


def why_not_held(problem: ReplanProblem) -> str | None:
    """What memory lacks for any pipelines at all, in bytes; None where some fit."""
    if holds(problem):
        return None
    least = _least_bytes(msgspec.structs.replace(model_of(problem), nodes=problem.nodes, memory_bytes=1))
    return (
        f"a node has {problem.memory_bytes} bytes, but up to {min(problem.max_depth, problem.layers)} stages on "
        f"{problem.nodes} nodes need exactly {least} bytes a node: give more memory, nodes or stages"
    )


@lru_cache(maxsize=KEPT_MODELS)
def _least_bytes(model: ReplanProblem) -> int:
    """`least_memory_bytes`, remembered: several solvers ask for the same problem."""
    return least_memory_bytes(model)
