"""What of a step's memory swaps can do nothing about."""

import msgspec
import numpy as np

from solvers.ir.graph import OpGraph
from solvers.ir.problem import Problem
from solvers.ir.swap import SwapProblem


def within_reach(graph: OpGraph, problem: Problem) -> OpGraph:
    """The step of a swap problem, with the budget at ops that need more while none of its tensors can be away.

    An optimizer that updates all parameters at once may need more than the budget for them alone. So a plan says
    nothing of such an op, and keeps the budget everywhere else.
    """
    assert isinstance(problem, SwapProblem), "of a swap problem"
    away = np.zeros(len(graph.ops) + 1, dtype=np.int64)
    for tensor in problem.tensors:
        away[tensor.last_forward_use + 1] += 1
        away[tensor.first_backward_use] -= 1
    held = np.asarray(graph.memory_bytes, dtype=np.int64)
    reached = np.where(np.cumsum(away)[: len(held)] > 0, held, np.minimum(held, problem.budget_bytes))
    return msgspec.structs.replace(graph, memory_bytes=tuple(reached.tolist()))
