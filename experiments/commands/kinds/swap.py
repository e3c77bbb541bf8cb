"""`bayplan make swap`: its limit of host memory, and what speaks against planning a measured step."""

from collections.abc import Iterator
from typing import get_args

import click

from experiments.commands.kinds.face import Face, Request
from experiments.profiled import doubts, sizes_doubts
from solvers.ir.amounts import parse_budget, show_bytes
from solvers.ir.graph import OpGraph
from solvers.ir.problem import with_host
from solvers.ir.swap import HostRounding, SwapProblem

OPTIONS = (
    click.option("--host-budget", metavar="B", help="swap, joint: host memory for what is swapped.  [default: any]"),
    click.option(
        "--host-rounding",
        type=click.Choice(get_args(HostRounding)),
        help="swap: what a tensor takes of the host.  [default: exact]",
    ),
)
OWN = ("host_budget", "host_rounding")


def _refined(request: Request, problem: SwapProblem) -> SwapProblem:
    """The problem with the limit of host memory that was asked for."""
    budget, rounding = (request.cut[name] for name in OWN)
    if rounding is not None:
        problem = with_host(problem, {"host_rounding": rounding})
    if budget is not None:
        problem = with_host(
            problem, {"host_budget_bytes": parse_budget(budget, max(problem.memory_bytes), "--host-budget")}
        )
    return problem


def _warnings(problem: SwapProblem, step: OpGraph, budget: str | None, peak: int) -> Iterator[str]:
    """What speaks against planning this step at all, or within this budget."""
    from solvers.swap.answers import OF_THESE
    from solvers.swap.evaluate import least_budget

    yield from doubts(step)
    yield from sizes_doubts(step)
    least, host = least_budget(problem), problem.host_budget_bytes
    if problem.budget_bytes < least:
        asked = f"the budget of {show_bytes(problem.budget_bytes)}"
        if host is None:
            asked += ": the least feasible one is"
        else:
            asked += f" while the host holds at most {show_bytes(host)}: the budget must be at least"
        yield (f"no plan fits {asked} {show_bytes(least)}, {100 * least / peak:.1f}% of the peak ({OF_THESE})")


FACE = Face(options=OPTIONS, own=OWN, refined=_refined, warnings=_warnings)
