"""`bayplan make swap`: what speaks against planning a measured step, or against its budget."""

from collections.abc import Iterator

from experiments.commands.kinds.face import Face
from experiments.profiled import doubts
from solvers.ir.amounts import show_bytes
from solvers.ir.graph import OpGraph
from solvers.ir.swap import SwapProblem


def _warnings(problem: SwapProblem, step: OpGraph, budget: str | None, peak: int) -> Iterator[str]:
    """What speaks against planning this step at all, or within this budget."""
    from solvers.swap.evaluate import least_budget

    yield from doubts(step)
    least = least_budget(problem)
    if problem.budget_bytes < least:
        yield (
            f"no plan fits the budget of {show_bytes(problem.budget_bytes)}: the least feasible one is "
            f"{show_bytes(least)}, {100 * least / peak:.1f}% of the peak"
        )
    elif budget is not None and problem.budget_bytes >= peak:
        yield (
            f"the budget of {show_bytes(problem.budget_bytes)} is not below the peak of {show_bytes(peak)}, so nothing "
            "has to leave: give less"
        )


FACE = Face(warnings=_warnings)
