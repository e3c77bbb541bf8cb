"""Limited information: the same problem without operator times, as SmartSwap's profiler leaves it (§3, Eq. 1)."""

from dataclasses import dataclass

import msgspec

from solvers.ir.solution import Limits, Solution, Solver
from solvers.ir.swap import SwapOp, SwapPlan, SwapProblem
from solvers.swap.evaluate import choices_of, evaluate, instance
from solvers.swap.launches import unswapped_us


def limited(problem: SwapProblem) -> SwapProblem:
    """Every op takes the mean time T_iter / N_iter of Eq. (1), in whole microseconds; what launching takes is unknown.

    Cumulative time is rounded, so the sum stays exactly T_iter; each op keeps at least 1 µs, since the mean has it (or
    is given it, where ops of 0 µs leave less). Plans of one problem are plans of the other (README, (V)).
    """
    count = len(problem.ops)
    total = max(count, unswapped_us(problem.ops)[-1])
    ops = tuple(
        SwapOp(name=op.name, phase=op.phase, time_us=total * (number + 1) // count - total * number // count)
        for number, op in enumerate(problem.ops)
    )
    return msgspec.structs.replace(problem, ops=ops, launch_us=0)


@dataclass(frozen=True)
class MissingCost:
    """A solver's answers with full and with limited information, both measured with the true op times, in µs.

    None where there is no plan. `believed_us` is what the plan of limited information would take if Eq. (1) were true.
    """

    full: Solution[SwapPlan]
    limited: Solution[SwapPlan]
    limited_us: int | None

    @property
    def full_us(self) -> float | None:
        """The makespan with full information."""
        return self.full.objective

    @property
    def believed_us(self) -> float | None:
        """What the solver itself expects of the plan from limited information."""
        return self.limited.objective

    @property
    def cost_us(self) -> float | None:
        """What the missing times cost; negative where a heuristic is luckier without them."""
        return None if self.full_us is None or self.limited_us is None else self.limited_us - self.full_us


def true_us(problem: SwapProblem, plan: SwapPlan) -> int | None:
    """The makespan of a plan, wherever it is from, with this problem's op times; None where it is invalid.

    Raises `InvalidProblem` where the plan names tensors or ops that the problem lacks.
    """
    given = instance(problem)
    timeline = evaluate(given, choices_of(problem, plan))
    return None if timeline is None else given.whole_us(timeline.makespan)


def cost_of_missing(
    problem: SwapProblem, solver: Solver[SwapProblem, Solution[SwapPlan]], limits: Limits
) -> MissingCost:
    """Solve with full and with limited information, and measure the second plan with the true op times."""
    full, guess = solver.solve(problem, limits), solver.solve(limited(problem), limits)
    return MissingCost(full, guess, None if guess.plan is None else true_us(problem, guess.plan))
