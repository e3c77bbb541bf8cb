"""What else there is to say of a plan that trained to the end: where it departed, and where it broke its promise."""

from collections.abc import Callable

from experiments.bits import unlike_bits
from experiments.execution import Execution
from solvers.ir.amounts import show_bytes

_WARMED = (
    "the first {} steps ran with all memory and no plan, as they run other operators than the profiled step: a session "
    "(runtime.swap.session) keeps the budget from the first step on"
)


def remarks(
    done: Execution, unlimited: Execution, budget_bytes: int, unlimited_peak_bytes: int, again: Callable[[], Execution]
) -> str | None:
    """Sentences on the run `done` beside the unlimited one; None where everything is as it should be.

    `again` trains once more with unlimited memory; it is called only where bits differ, to know whose fault that is.
    """
    budget = show_bytes(budget_bytes)
    said = [_WARMED.format(done.warm_up)] if done.warm_up else []
    said += [done.departure] if done.departure is not None else []
    if budget_bytes >= unlimited_peak_bytes:
        peak = show_bytes(unlimited_peak_bytes)
        said.append(f"the budget of {budget} is not below the peak of {peak}, so nothing has to leave: give less")
    if done.peak_bytes > budget_bytes:
        said.append(f"its peak of {show_bytes(done.peak_bytes)} is above the budget of {budget}")
    if not all(done.equals(unlimited)):
        said.append(_why_not_equal(done, unlimited, again()))
    return "; ".join(said) or None


def _why_not_equal(done: Execution, unlimited: Execution, again: Execution) -> str:
    if all(again.equals(unlimited)):
        return f"{_difference(done, unlimited)}, though a second run with unlimited memory is equal to the first"
    return (
        f"{_difference(again, unlimited)} between two runs with unlimited memory too, so the program itself does not "
        "repeat: let it draw its random numbers from torch, numpy or random, and keep no state from build to build"
    )


def _difference(one: Execution, other: Execution) -> str:
    """Where two runs first differ."""
    if one.losses.shape != other.losses.shape:
        return f"{len(one.losses)} losses are there, not {len(other.losses)}"
    unlike = unlike_bits(one.losses, other.losses)
    if unlike:
        return f"losses differ from step {unlike[0] + 1} on"
    _, same_parameters, _ = one.equals(other)
    return "gradients differ" if same_parameters else "parameters differ"
