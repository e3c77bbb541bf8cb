"""What every solver of this room answers alike: nothing to do, impossible, or a plan measured exactly."""

import time
from collections.abc import Sequence

from solvers.ir.solution import Limits, Solution, Status
from solvers.ir.swap import SwapPlan, SwapProblem
from solvers.swap.evaluate import Choice, Instance, evaluate, least_budget, plan_of


def trivial(
    problem: SwapProblem, given: Instance, solver: str, limits: Limits, began: float
) -> Solution[SwapPlan] | None:
    """The proof-free answers: an empty plan where everything fits, INFEASIBLE below the least budget (README, (L))."""
    elapsed = time.perf_counter() - began
    if not given.busy:
        return Solution(
            status=Status.OPTIMAL,
            plan=SwapPlan(swaps=()),
            solver=solver,
            engine="closed form",
            objective=given.whole_us(given.base),
            bound=given.whole_us(given.base),
            base=given.whole_us(given.base),
            reason="everything fits: nothing needs to leave the device",
            least_budget_bytes=least_budget(problem),
            seed=limits.seed,
            solve_time_s=elapsed,
        )
    least = least_budget(problem)
    if problem.budget_bytes >= least:
        return None
    return Solution(
        status=Status.INFEASIBLE,
        plan=None,
        solver=solver,
        engine="closed form",
        reason=f"the budget is {problem.budget_bytes} bytes, the least feasible one exactly {least} bytes: raise it",
        least_budget_bytes=least,
        seed=limits.seed,
        solve_time_s=elapsed,
    )


def swap_everything(given: Instance) -> tuple[list[Choice], int]:
    """Every candidate leaves and returns at its use: a plan wherever there is one (README, (L)), and its makespan."""
    choices = [(tensor, given.last[tensor]) for tensor in range(len(given.size))]
    timeline = evaluate(given, choices)
    assert timeline is not None, "above the least budget, swapping everything is always possible"
    return choices, timeline.makespan


def feasible(
    problem: SwapProblem,
    given: Instance,
    solver: str,
    choices: Sequence[Choice],
    makespan: int,
    limits: Limits,
    began: float,
    bound: int | None = None,
    engine: str | None = None,
    reason: str | None = None,
) -> Solution[SwapPlan]:
    """A plan with its exact objective; OPTIMAL where the bound meets it. `makespan` and `bound` are in ticks."""
    objective, least = given.whole_us(makespan), None if bound is None else given.whole_us(bound)
    return Solution(
        status=Status.OPTIMAL if least == objective else Status.FEASIBLE,
        plan=plan_of(problem, choices),
        solver=solver,
        engine=engine,
        objective=objective,
        bound=least,
        base=given.whole_us(given.base),
        reason=reason,
        least_budget_bytes=least_budget(problem),
        seed=limits.seed,
        solve_time_s=time.perf_counter() - began,
    )
