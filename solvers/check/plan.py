"""Judge of plan files: the decision by its kind's judge, and every claim about it (formats.md 2)."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from solvers.check import (
    layout,
    layout_bound,
    layout_floor,
    layout_least,
    partition,
    recompute_graph,
    recompute_graph_bound,
    recompute_layer,
    replan,
    swap,
)
from solvers.check.verdict import Verdict
from solvers.ir.codec import PlanFile, Problem, problem_sha256
from solvers.ir.solution import Status

Judge = Callable[[Any, Any], Verdict]
JUDGES: dict[str, Judge] = {
    "swap": swap.judge_swap,
    "partition": partition.judge_partition,
    "recompute-graph": recompute_graph.judge_recompute_graph,
    "recompute-layer": recompute_layer.judge_recompute_layer,
    "replan": replan.judge_replan,
    "layout": layout.judge_layout,
}
BASES: dict[str, Callable[[Any], int]] = {
    "swap": swap.base_us,
    "recompute-graph": recompute_graph.base_us,
    "recompute-layer": lambda problem: 0,
    "layout": layout_floor.base_us,
}
"""The objective with unlimited memory (`layout`: what no decision ends before then), of the kinds that have one."""
LEAST_BUDGETS: dict[str, Callable[[Any], tuple[int, int]]] = {
    "swap": lambda problem: (swap.least_budget_bytes(problem),) * 2,
    "layout": layout_least.least_device_bytes,
}
"""At least and at most what the least feasible budget is, of the kinds where that is easy to tell."""
BUDGETS = {
    "swap": "budget_bytes",
    "recompute-graph": "budget_bytes",
    "recompute-layer": "budget_bytes",
    "layout": "device_bytes",
}
"""The field that is the budget, of the kinds that have one."""
FEASIBILITY: dict[str, Callable[[Any], bool]] = {
    "swap": lambda problem: swap.least_budget_bytes(problem) <= problem.budget_bytes,
    "partition": partition.is_feasible,
    "layout": lambda problem: layout_least.least_device_bytes(problem)[1] <= problem.device_bytes,
}
"""Whether it is easy to tell that some decision is valid, of the kinds where it ever is."""

Certificates = Mapping[str, Mapping[str, Callable[[Any, Mapping[str, Any]], tuple[list[str], float]]]]
"""kind → the certificate's `form` → adds it up again: its faults, and the bound in µs that it proves."""
CERTIFICATES: Certificates = {
    "recompute-graph": {"cut-relaxation/1": recompute_graph_bound.add_up},
    "layout": {
        "floor/1": layout_bound.add_up_floor,
        "every-decision/1": layout_bound.add_up_decisions,
        "least-memory/1": layout_bound.add_up_least_memory,
        "layout-tree/1": layout_bound.add_up_tree,
    },
}


def check_plan(
    problem: Problem, plan_file: PlanFile, sha256: str | None = None, certificates: Certificates = CERTIFICATES
) -> Verdict:
    """Judge a plan file against its problem; `sha256` is the problem file's (default: of the problem as we write it).

    Raises `InvalidInput` where the decision does not have its kind's form.
    """
    if plan_file.kind != problem.KIND:
        return Verdict((f"the plan is of kind {plan_file.kind}, but the problem of kind {problem.KIND}",))
    expected = problem_sha256(problem) if sha256 is None else sha256
    if plan_file.problem_sha256 not in (None, expected):
        return Verdict((f"problem_sha256 is {plan_file.problem_sha256}, another problem's: this one has {expected}",))
    plan = plan_file.plan()
    if plan is None:
        violations = [f"the answer is {plan_file.status.value}: there is no decision to judge"]
        violations += _claims_without_decision(plan_file)
        judged = Verdict(())
    else:
        judged = JUDGES[problem.KIND](problem, plan)
        violations = [*judged.violations, *_claims_with_decision(plan_file, judged.objective_us)]
    violations += _base(problem, plan_file)
    violations += _least_budget(problem, plan_file)
    violations += _certificate(problem, plan_file, certificates)
    return Verdict(tuple(violations), judged.objective_us)


def _claims_with_decision(plan: PlanFile, objective: int | None) -> list[str]:
    """The status says that there is a plan; objective, bound and status agree with the recomputed objective."""
    violations = []
    if plan.status in (Status.INFEASIBLE, Status.UNKNOWN):
        violations.append(f"status is {plan.status.value}, but there is a decision")
    if objective is None:
        return violations
    if plan.objective_us is not None and plan.objective_us != objective:
        violations.append(f"objective_us is {plan.objective_us}, but the decision takes {objective}")
    if plan.bound_us is not None and plan.bound_us > objective:
        violations.append(f"bound_us is {plan.bound_us}, above the objective {objective}")
    if plan.status is Status.OPTIMAL and (plan.bound_us is None or plan.bound_us < objective):
        bound = "null" if plan.bound_us is None else plan.bound_us
        violations.append(f"status is optimal, but bound_us is {bound} and the decision takes {objective}")
    return violations


def _claims_without_decision(plan: PlanFile) -> list[str]:
    violations = []
    if plan.status in (Status.OPTIMAL, Status.FEASIBLE):
        violations.append(f"status is {plan.status.value}, but decision is null")
    if plan.objective_us is not None:
        violations.append(f"objective_us is {plan.objective_us}, but decision is null")
    return violations


def _base(problem: Problem, plan: PlanFile) -> list[str]:
    if plan.base_us is None:
        return []
    if problem.KIND not in BASES:
        return [f"base_us is {plan.base_us}, but the kind {problem.KIND} has no base: it must be null"]
    if plan.status is Status.INFEASIBLE:
        return [f"base_us is {plan.base_us}, but an infeasible answer has no base: it must be null"]
    base = BASES[problem.KIND](problem)
    return [] if plan.base_us == base else [f"base_us is {plan.base_us}, but with unlimited memory it is {base}"]


def _least_budget(problem: Problem, plan: PlanFile) -> list[str]:
    """An infeasible answer names its least budget and says exactly or at least; where we know better, it is true."""
    least, infeasible = plan.least_budget_bytes, plan.status is Status.INFEASIBLE
    violations = []
    if infeasible and FEASIBILITY.get(problem.KIND, _never)(problem):
        violations.append("status is infeasible, but the problem has a valid decision")
    if problem.KIND not in BUDGETS:
        if least is not None:
            violations.append(f"least_budget_bytes is {least}, but the kind {problem.KIND} has no budget")
        return violations
    if least is None:
        return [*violations, "status is infeasible, but least_budget_bytes is null"] if infeasible else violations
    label, said = _said(plan.reason)
    if infeasible and said != least:
        violations.append(f"least_budget_bytes is {least}, but reason does not say exactly or at least {least} bytes")
    budget: int = getattr(problem, BUDGETS[problem.KIND])
    if infeasible and least <= budget:
        violations.append(f"status is infeasible, but least_budget_bytes {least} is within budget {budget}")
    if problem.KIND in LEAST_BUDGETS:
        low, high = LEAST_BUDGETS[problem.KIND](problem)
        true = f"{low}" if low == high else f"between {low} and {high}"
        if least > high or (least < low and not (label == "at least" and said == least)):
            violations.append(f"least_budget_bytes is {least}, but the least feasible budget is {true}")
    return violations


def _said(reason: str | None) -> tuple[str | None, int | None]:
    """What the reason calls the least budget: `exactly` or `at least`, and how many bytes."""
    found = re.search(r"\b(exactly|at least) (\d+) bytes\b", reason or "")
    return (found[1], int(found[2])) if found else (None, None)


def _never(problem: Any) -> bool:
    return False


def _certificate(problem: Problem, plan: PlanFile, certificates: Certificates) -> list[str]:
    """Add the certificate up again: it proves the bound claimed, or that nothing is valid where that is claimed."""
    if plan.certificate is None:
        return []
    form = plan.certificate.get("form")
    known = certificates.get(problem.KIND, {})
    add_up = known.get(form) if isinstance(form, str) else None
    if add_up is None:
        names = ", ".join(sorted(known)) or "none"
        return [f"certificate has the unknown form {form!r}: the kind {problem.KIND} knows {names}"]
    faults, proved = add_up(problem, plan.certificate)
    if not faults and plan.status is Status.INFEASIBLE and proved < math.inf:
        return [f"status is infeasible, but the certificate proves only that no decision ends before {proved} us"]
    if not faults and plan.bound_us is not None and plan.bound_us > proved:
        return [f"bound_us is {plan.bound_us}, but the certificate proves only {proved}"]
    return [f"certificate: {fault}" for fault in faults]
