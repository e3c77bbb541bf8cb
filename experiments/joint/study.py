"""One case: each single technique, the greedy and the joint plan, every plan judged."""

import time
from collections.abc import Mapping
from typing import Any

from experiments.joint.cases import LINKS, Case
from solvers.check import check_plan, prove
from solvers.ir import JointProblem, Limits, Solution
from solvers.ir.codec import plan_file
from solvers.ir.errors import BayplanError
from solvers.joint.draft import Draft, measure, plan_of
from solvers.joint.given import Given, given_of
from solvers.joint.singles import recompute_only, swap_only
from solvers.planner import build_solver, require_valid


def answered(case: Case, time_s: float) -> dict[str, Any]:
    """Overheads in µs by who planned, each in `time_s` (the greedy in less); None where no plan was found."""
    problem = case.problem()
    given = given_of(problem)
    row: dict[str, Any] = {
        "case": case.name,
        "link": LINKS[case.hardware],
        "ops": len(given),
        "base_us": given.base_us,
        "budget_bytes": given.budget,
        "excess_bytes": max(measure(given, Draft([()] * len(given))).peaks) - given.budget,
        "time_s": time_s,
    }
    limits = Limits(time_s=time_s)
    row["swap"] = _single(problem, given, swap_only(given, limits))
    row["recompute"] = _single(problem, given, recompute_only(given, limits))
    for name, key in (("greedy-joint", "greedy"), ("joint", "joint")):
        began = time.perf_counter()
        found = build_solver(name, {}).solve(problem, limits)
        row[f"{key}_s"] = round(time.perf_counter() - began, 1)
        row |= _judged(problem, found, key)
    return row


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
