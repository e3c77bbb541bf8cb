"""The best decision of a tiny `swap` problem: every one is judged."""

import math
from itertools import permutations, product

from solvers.check.judge import Range
from solvers.check.swap.floor import floor_us
from solvers.check.swap.judge import judge_swap
from solvers.ir.swap import Swap, SwapPlan, SwapProblem

MOST_DECISIONS = 4_000
"""More decisions than this are not judged one by one."""


def best_us(problem: SwapProblem, claimed: float | None) -> Range:
    """The optimum, twice, where there are few decisions; else at least the closed form."""
    least, tensors = floor_us(problem), problem.tensors
    count = math.factorial(len(tensors))
    for tensor in tensors:
        count *= 1 + tensor.first_backward_use - tensor.last_forward_use
    if least == math.inf or count > MOST_DECISIONS:
        return least, math.inf
    best = math.inf
    for returns in product(*(range(t.last_forward_use, t.first_backward_use + 1) for t in tensors)):
        away = [(t, k) for t, k in zip(tensors, returns, strict=True) if k > t.last_forward_use]
        for order in permutations(away):
            plan = SwapPlan(swaps=tuple(Swap(tensor=t.id, swap_in_at=k) for t, k in order))
            ended = judge_swap(problem, plan).objective_us
            best = best if ended is None else min(best, ended)
    return best, best
