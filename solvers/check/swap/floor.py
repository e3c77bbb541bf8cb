"""What no `swap` decision ends before: the bytes that must be away cross the link, out before an op, back behind it."""

import math
from fractions import Fraction
from itertools import accumulate

from solvers.check.swap.judge import base_us, least_budget_bytes
from solvers.ir.swap import SwapProblem


def floor_us(problem: SwapProblem) -> float:
    """The larger of the base and, for each op j that is short of d bytes, what moving d bytes takes around it.

    While j runs, tensors of d bytes or more are away that may be (a < j < b). They left behind the first such a, and
    were all out when j began; they come in behind j, and the op that reads the last one runs behind it. Transfers of a
    direction follow each other at the link's rate. Nothing is valid where all that may be away is too little.
    """
    if least_budget_bytes(problem) > problem.budget_bytes:
        return math.inf
    ends = list(accumulate((op.time_us for op in problem.ops), initial=0))
    whole, best = ends[-1], Fraction(base_us(problem))
    for j, memory in enumerate(problem.memory_bytes):
        short = memory - problem.budget_bytes
        around = [t for t in problem.tensors if t.last_forward_use < j < t.first_backward_use]
        if short <= 0 or not around:
            continue
        first, last = min(t.last_forward_use for t in around), max(t.first_backward_use for t in around)
        out = ends[first + 1] + Fraction(short * 10**6, problem.link.out_bytes_per_s)
        begin = max(out, Fraction(ends[j]))
        behind = begin + problem.ops[j].time_us
        back = behind + Fraction(short * 10**6, problem.link.in_bytes_per_s) + whole - ends[last]
        best = max(best, begin + whole - ends[j], back)
    return math.ceil(best)
