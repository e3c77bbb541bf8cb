"""One case: each single technique, the greedy and the joint plan, every plan judged."""

import resource
from collections.abc import Mapping
from typing import Any

from experiments.joint.cases import Case
from solvers.check import check_plan, prove
from solvers.ir import JointProblem, Limits, Solution
from solvers.ir.codec import plan_file
from solvers.ir.errors import BayplanError
from solvers.joint.draft import Draft, measure, plan_of
from solvers.joint.given import Given, given_of
from solvers.joint.singles import recompute_only, swap_only
from solvers.planner import build_solver, require_valid

LONGEST_S = 1800.0
"""Never reached: `work` ends the planners, so that a busy machine gets the plans of an idle one."""


def answered(case: Case, work: float) -> dict[str, Any]:
    """Overheads in µs by who planned, each with that `work`; None where no plan was found. `…_s`: of processor time."""
    began = _processor_s()
    problem = case.problem()
    given = given_of(problem)
    row: dict[str, Any] = {
        "case": case.name,
        "family": case.family,
        "link": case.link,
        "ops": len(given),
        "base_us": given.base_us,
        "budget_bytes": given.budget,
        "excess_bytes": max(measure(given, Draft([()] * len(given))).peaks) - given.budget,
        "work": work,
    }
    limits = Limits(time_s=LONGEST_S, work=work)
    row["swap"] = _single(problem, given, swap_only(given, limits))
    row["recompute"] = _single(problem, given, recompute_only(given, limits))
    for name, key in (("greedy-joint", "greedy"), ("joint", "joint")):
        start = _processor_s()
        found = build_solver(name, {}).solve(problem, limits)
        row[f"{key}_s"] = round(_processor_s() - start, 1)
        row |= _judged(problem, found, key)
    row["case_s"] = round(_processor_s() - began, 1)
    return row


def _processor_s() -> float:
    """Processor time of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _single(problem: JointProblem, given: Given, draft: Draft | None) -> int | None:
    """The overhead of a single technique's plan, which the joint judge has passed."""
    if draft is None:
        return None
    found = measure(given, draft)
    if found.violation is not None:
        return None
    require_valid(problem, plan_of(given, draft), "single technique")
    return found.objective_us - given.base_us


def _judged(problem: JointProblem, found: Solution[Any], key: str) -> Mapping[str, Any]:
    """Overhead and bound of a checked answer, and what stands behind the bound."""
    file = plan_file(found, "joint", None)
    verdict = check_plan(problem, file)
    faults = [said for said in verdict.violations if "no decision" not in said]
    if faults:
        raise BayplanError(f"{key}'s answer to {problem.name} does not pass its check ({faults[0]}): report this")
    base = sum(op.time_us for op in problem.ops)
    told: dict[str, Any] = {key: None if found.objective is None else found.objective - base}
    if found.bound is not None:
        told |= {"bound": found.bound - base, "proven": prove(problem, file, verdict).is_proven, "by": found.reason}
    return told
