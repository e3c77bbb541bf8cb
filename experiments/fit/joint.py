"""Keeping, swapping and recomputing together: the step within the budget, in bytes."""

from dataclasses import replace

import msgspec

from experiments.fit.answer import Row
from experiments.fit.judge import Budget, allocated_peak
from experiments.fit.trace import Trace
from solvers.check.joint import peak_of
from solvers.ir.errors import BayplanError
from solvers.ir.hardware import Hardware
from solvers.ir.joint import JointPlan, JointProblem
from solvers.ir.solution import Limits
from solvers.joint.draft import draft_of, host_peak
from solvers.joint.given import given_of, least_budget_bytes
from solvers.joint.instances import peak_bytes
from solvers.planner import build_solver, make_problem, require_valid

WHAT = "each output stays, leaves for the host or is computed again, decided together"
IN_BYTES = "planned in bytes: such plans have no schedule yet, so what segments hold of them is not known"
QUICK = {"greedy-swap": "greedy-joint", "capuchin-swap": "greedy-joint"}
"""Who plans where swaps are planned in milliseconds; else `joint` does."""


def joint_row(trace: Trace, hardware: Hardware, budget: Budget, how: str, solver: str, limits: Limits) -> Row:
    """The row of both techniques together; a machine without a host link, or a budget too small, says so."""
    blank = Row(technique="joint", what=WHAT, how=f"{how}; the plan solved and judged")
    try:
        problem = _problem(trace, hardware, budget.bytes)
    except BayplanError as error:
        return replace(blank, reason=f"cannot be planned here: {error}")
    name, least = QUICK.get(solver, "joint"), least_budget_bytes(problem)
    blank = replace(
        blank,
        solver=name,
        least_allocated_bytes=least,
        margin_allocated_bytes=budget.bytes - least,
        remarks=(IN_BYTES,),
    )
    if least > budget.bytes:
        return replace(blank, fits=False, fits_allocated=False, allocated_bytes=least)
    found = build_solver(name, {}).solve(problem, limits)
    if not isinstance(found.plan, JointPlan):
        return replace(blank, reason=f"no plan was found ({found.reason}): give more time")
    require_valid(problem, found.plan, name)
    peak, given = peak_of(problem, found.plan), given_of(problem)
    return replace(
        blank,
        fits_allocated=True,
        allocated_bytes=None if peak is None else peak.bytes,
        host_bytes=host_peak(given, draft_of(given, found.plan)),
        step_us=found.objective,
        step_how=f"simulated, plan of {name}" + _proven(found.objective, found.bound),
        plan_budget_bytes=budget.bytes,
    )


def _proven(objective: float | None, bound: float | None) -> str:
    if not objective or bound is None:
        return ""
    return f"; no plan is more than {100 * (objective - bound) / objective:.2f} % shorter"


def _problem(trace: Trace, hardware: Hardware, budget_bytes: int) -> JointProblem:
    """The problem whose peak with everything kept is the plain step's allocated one, other microbatches included."""
    problem = make_problem("joint", trace.graph, hardware, budget_bytes)
    assert isinstance(problem, JointProblem)
    more = allocated_peak(trace.events) - peak_bytes(problem)
    return msgspec.structs.replace(problem, static_bytes=problem.static_bytes + max(0, more))
