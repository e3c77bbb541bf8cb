"""`bayplan make joint`: its limit of host memory, and what speaks against the budget."""

from collections.abc import Iterator

from experiments.commands.kinds.face import Face, Request
from experiments.profiled import doubts, sizes_doubts
from solvers.ir.amounts import parse_budget, show_bytes
from solvers.ir.graph import OpGraph
from solvers.ir.joint import JointProblem
from solvers.ir.problem import with_host

OWN = ("host_budget",)


def _refined(request: Request, problem: JointProblem) -> JointProblem:
    """The problem with the limit of host memory that was asked for."""
    from solvers.joint.instances import peak_bytes

    budget = request.cut["host_budget"]
    if budget is None:
        return problem
    return with_host(problem, {"host_budget_bytes": parse_budget(budget, peak_bytes(problem), "--host-budget")})


def _warnings(problem: JointProblem, step: OpGraph, budget: str | None, peak: int) -> Iterator[str]:
    """What speaks against planning this step at all, or within this budget."""
    from solvers.joint.given import least_budget_bytes

    yield from doubts(step)
    yield from sizes_doubts(step)
    least = least_budget_bytes(problem)
    if problem.budget_bytes < least:
        yield (
            f"no plan fits the budget of {show_bytes(problem.budget_bytes)}: it must be at least {show_bytes(least)}, "
            f"{100 * least / peak:.1f}% of the peak"
        )


FACE = Face(own=OWN, refined=_refined, warnings=_warnings)
