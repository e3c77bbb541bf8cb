"""What no `replan` decision takes less than: all nodes share all the work, and a microbatch does it stage by stage."""

import math

from solvers.check.judge import Range
from solvers.ir.replan import ReplanProblem


def best_us(problem: ReplanProblem, claimed: float | None) -> Range:
    """No step is shorter than one microbatch's passes, nor than all microbatches' passes shared by the nodes evenly.

    A transition only makes the objective longer, and so do messages and the synchronization of gradients.
    """
    extra = (*problem.first_extra_us, *problem.last_extra_us)
    alone = problem.layers * (problem.forward_us + problem.backward_us) + sum(extra)
    return max(alone, -(-problem.microbatches * alone // problem.nodes)), math.inf
