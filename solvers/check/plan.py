"""Judge of plan files: the decision by its kind's judge, and every claim about it (formats.md 2)."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from solvers.check.judge import Judge
from solvers.check.verdict import Verdict
from solvers.ir.codec import PlanFile, problem_sha256
from solvers.ir.problem import Problem
from solvers.ir.sentences import quoted
from solvers.ir.solution import Status
from solvers.kinds import KINDS, load

AddUp = Callable[[Any, Mapping[str, Any]], tuple[list[str], float]]
"""Adds a certificate up again: its faults, and the bound in µs that it proves."""


def judge_of(kind: str) -> Judge:
    """The judge of a kind; this imports its folder."""
    judge: Judge = load(KINDS[kind].judge)
    return judge


def certificates_of(kind: str) -> dict[str, AddUp]:
    """The forms of certificates that a kind knows, each with the function that adds it up again."""
    return {form: load(target) for form, target in KINDS[kind].certificates.items()}


def check_plan(
    problem: Problem,
    plan_file: PlanFile,
    sha256: str | None = None,
    certificates: Mapping[str, AddUp] | None = None,
) -> Verdict:
    """Judge a plan file against its problem; `sha256` is the problem file's (default: of the problem as we write it).

    `certificates` maps a form to its function (default: the kind's). Raises `InvalidInput` where the decision does not
    have its kind's form.
    """
    if plan_file.kind != problem.KIND:
        return Verdict((f"the plan is of kind {plan_file.kind}, but the problem of kind {problem.KIND}",))
    expected = problem_sha256(problem) if sha256 is None else sha256
    if plan_file.problem_sha256 not in (None, expected):
        shown = quoted(plan_file.problem_sha256).strip("'")
        return Verdict((f"problem_sha256 is {shown}, another problem's: this one has {expected}",))
    plan = plan_file.plan()
    if plan is None:
        violations = [f"the answer is {plan_file.status.value}: there is no decision to judge"]
        violations += _claims_without_decision(plan_file)
        judged = Verdict(())
    else:
        judged = judge_of(problem.KIND).decision(problem, plan)
        violations = [*judged.violations, *_claims_with_decision(plan_file, judged.objective_us)]
    violations += _base(problem, plan_file)
    violations += _least_budget(problem, plan_file)
    faults, certified = _certificate(problem, plan_file, certificates, judged.objective_us)
    return Verdict((*violations, *faults), judged.objective_us, certified)


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
    base_us = judge_of(problem.KIND).base_us
    if base_us is None:
        return [f"base_us is {plan.base_us}, but the kind {problem.KIND} has no base: it must be null"]
    if plan.status is Status.INFEASIBLE:
        return [f"base_us is {plan.base_us}, but an infeasible answer has no base: it must be null"]
    known = base_us(problem)
    low, high = known if isinstance(known, tuple) else (known, known)
    if low <= plan.base_us <= high:
        return []
    true = f"{low}" if low == high else f"between {low} and {high}"
    return [f"base_us is {plan.base_us}, but with unlimited memory it is {true}"]


def _least_budget(problem: Problem, plan: PlanFile) -> list[str]:
    """An infeasible answer names its least budget and says exactly or at least; where we know better, it is true."""
    least, infeasible, field = plan.least_budget_bytes, plan.status is Status.INFEASIBLE, KINDS[problem.KIND].budget
    is_feasible = judge_of(problem.KIND).is_feasible
    violations = []
    if infeasible and is_feasible is not None and is_feasible(problem):
        violations.append("status is infeasible, but the problem has a valid decision")
    if field is None:
        if least is not None:
            violations.append(f"least_budget_bytes is {least}, but the kind {problem.KIND} has no budget")
        return violations
    if least is None:
        return [*violations, "status is infeasible, but least_budget_bytes is null"] if infeasible else violations
    label, said = said_least(plan.reason)
    if infeasible and said != least:
        violations.append(f"least_budget_bytes is {least}, but reason does not say exactly or at least {least} bytes")
    budget: int = getattr(problem, field)
    if infeasible and least <= budget:
        violations.append(f"status is infeasible, but least_budget_bytes {least} is within budget {budget}")
    return violations + _known_least(problem, least, is_lower_bound=label == "at least" and said == least)


def _known_least(problem: Problem, least: int, is_lower_bound: bool) -> list[str]:
    """Whether the least budget agrees with what the judge knows; a lower bound, called so, may be less."""
    known = judge_of(problem.KIND).least_budget_bytes
    if known is None:
        return []
    low, high = known(problem)
    if low <= least <= high or (least < low and is_lower_bound):
        return []
    true = f"{low}" if low == high else f"between {low} and {high}"
    return [f"least_budget_bytes is {least}, but the least feasible budget is {true}"]


def said_least(reason: str | None) -> tuple[str | None, int | None]:
    """What the reason calls the least budget: `exactly` or `at least`, and how many bytes."""
    found = re.search(r"\b(exactly|at least) (\d+) bytes\b", reason or "")
    return (found[1], int(found[2])) if found else (None, None)


def _certificate(
    problem: Problem, plan: PlanFile, certificates: Mapping[str, AddUp] | None, objective: int | None
) -> tuple[list[str], float | None]:
    """Add the certificate up again: it proves the bound claimed, or that nothing is valid where that is claimed.

    It never proves more than a valid decision takes: else the proof, the judge or both are wrong.
    """
    if plan.certificate is None:
        return [], None
    form = plan.certificate.get("form")
    known = certificates_of(problem.KIND) if certificates is None else certificates
    add_up = known.get(form) if isinstance(form, str) else None
    if add_up is None:
        names = ", ".join(sorted(known)) or "none"
        return [f"certificate has the unknown form {quoted(form)}: the kind {problem.KIND} knows {names}"], None
    faults, proved = add_up(problem, plan.certificate)
    if faults:
        return [f"certificate: {fault}" for fault in faults], None
    if plan.status is Status.INFEASIBLE and proved < math.inf:
        return [f"status is infeasible, but the certificate proves only that no decision ends before {proved} us"], None
    if objective is not None and proved > objective:
        shown = "that no decision is valid" if proved == math.inf else proved
        return [f"the certificate proves {shown}, but the decision takes {objective}"], proved
    if plan.bound_us is not None and plan.bound_us > proved:
        return [f"bound_us is {plan.bound_us}, but the certificate proves only {proved}"], proved
    return [], proved
