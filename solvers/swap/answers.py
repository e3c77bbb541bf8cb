"""What every solver of this room answers alike: nothing to do, impossible, or a plan measured exactly."""

from collections.abc import Sequence

from solvers.ir.solution import Call, Solution
from solvers.ir.swap import SwapPlan, SwapProblem
from solvers.swap.evaluate import Choice, Instance, evaluate, least_budget, plan_of


def trivial(problem: SwapProblem, given: Instance, call: Call) -> Solution[SwapPlan] | None:
    """The proof-free answers: an empty plan where everything fits, INFEASIBLE below the least budget (README, (L))."""
    least = least_budget(problem)
    if not given.busy:
        base = given.whole_us(given.base)
        return call.based(base).found(
            SwapPlan(swaps=()),
            base,
            base,
            engine="closed form",
            reason="everything fits: nothing needs to leave the device",
            least_budget_bytes=least,
        )
    if problem.budget_bytes >= least:
        return None
    return call.infeasible(
        f"the budget is {problem.budget_bytes} bytes, the least feasible one exactly {least} bytes: raise it",
        engine="closed form",
        least_budget_bytes=least,
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
    call: Call,
    found: tuple[Sequence[Choice], int],
    bound: int | None = None,
    engine: str | None = None,
    reason: str | None = None,
) -> Solution[SwapPlan]:
    """A plan with its exact objective; OPTIMAL where the bound meets it. Makespan and `bound` are in ticks."""
    choices, makespan = found
    return call.based(given.whole_us(given.base)).found(
        plan_of(problem, choices),
        given.whole_us(makespan),
        None if bound is None else given.whole_us(bound),
        reason,
        engine=engine,
        least_budget_bytes=least_budget(problem),
    )
