"""What every solver of this room answers alike: nothing to do, impossible, or a plan measured exactly."""

from collections.abc import Sequence

from solvers.ir.solution import Call, Solution
from solvers.ir.swap import SwapPlan, SwapProblem
from solvers.swap.cover import Cover, least_cover, rest_of
from solvers.swap.evaluate import Choice, Instance, evaluate, least_budget, plan_of

Found = tuple[list[Choice], int]
"""Choices and their makespan in ticks."""


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
    return call.infeasible(_too_small(problem, given, least), engine="closed form", least_budget_bytes=least)


OF_THESE = "of plans that swap this problem's tensors; a session (runtime.swap.session) may need less"
"""What a least budget is the least of: whoever may move other tensors, or some again and again, is not bound by it."""


def _too_small(problem: SwapProblem, given: Instance, least: int) -> str:
    """The sentence for a budget below the least: which memory lacks, the device's or the host's."""
    asked = f"the budget is {problem.budget_bytes} bytes, the least feasible one"
    host = problem.host_budget_bytes
    if host is None or problem.budget_bytes < least_budget(problem, of_host=False):
        on_host = max(0, max(problem.memory_bytes) - least)
        how = "exactly" if host is None else "at least"
        then = f"the host then holds at least {on_host} bytes" if on_host else "nothing of this step's peak can leave"
        return f"{asked} {how} {least} bytes: raise it ({then}; {OF_THESE})"
    return (
        f"{asked} at least {least} bytes with host_budget_bytes={host}: raise it, or give the host at least "
        f"{max(given.need)} bytes ({OF_THESE})"
    )


def swap_everything(given: Instance) -> Found | None:
    """Every candidate leaves and returns at its use, and its makespan.

    A plan wherever there is one (README, (L)); with a limit of host memory None where it is not.
    """
    return _returned_at_use(given, range(len(given.size)))


def whatever_fits(
    problem: SwapProblem, given: Instance, call: Call, engine: str = "auto"
) -> Found | Solution[SwapPlan]:
    """A plan where there is one: all candidates or, where the host is too small for that, a set of little host memory.

    Else the answer: INFEASIBLE where there is none, UNKNOWN where the limits ended the search for one.
    """
    found = swap_everything(given)
    if found is not None:
        return found
    assert given.host is not None, "above the least budget, swapping everything is always possible"
    cover = least_cover(given, rest_of(call.limits, call.left_s), engine)
    if cover.selected is not None and given.host.holds(cover.selected):
        found = _returned_at_use(given, cover.selected)
        assert found is not None, "a cover keeps the budget of both memories"
        return found
    return _without_plan(problem, given, call, cover)


def _without_plan(problem: SwapProblem, given: Instance, call: Call, cover: Cover) -> Solution[SwapPlan]:
    assert given.host is not None
    exactly = "exactly" if cover.least_bytes == cover.need_bytes else "at least"
    needs = f"with this budget the host needs {exactly} {cover.least_bytes} bytes, host_budget_bytes is"
    if cover.least_bytes > given.host.budget:
        least = problem.budget_bytes + 1
        return call.infeasible(
            f"the budget is {problem.budget_bytes} bytes, the least feasible one at least {least} bytes with this "
            f"host memory: raise it, or host_budget_bytes ({needs} {given.host.budget}; {OF_THESE})",
            engine=cover.engine,
            least_budget_bytes=least,
        )
    return call.based(given.whole_us(given.base)).unknown(
        f"no plan was found within the limits ({needs} {given.host.budget}): give more time, or a larger budget",
        engine=cover.engine,
    )


def _returned_at_use(given: Instance, selected: Sequence[int]) -> Found | None:
    choices = [(tensor, given.last[tensor]) for tensor in selected]
    timeline = evaluate(given, choices)
    return None if timeline is None else (choices, timeline.makespan)


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
