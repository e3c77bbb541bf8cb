"""What of a plan's claims is proven, and what is only claimed: by the judge itself, or by a certificate (2.12)."""

import math
from dataclasses import dataclass

from msgspec.structs import replace

from solvers.check.judge import Range
from solvers.check.plan import judge_of, said_least
from solvers.check.verdict import Verdict
from solvers.ir.codec import PlanFile
from solvers.ir.problem import Problem
from solvers.ir.solution import Status
from solvers.kinds import KINDS

NOTHING = "nothing is claimed"


@dataclass(frozen=True)
class Proof:
    """What stands behind an answer.

    `proven_us`: no valid decision ends before then, as proved by the judge or a certificate (infinite: none is valid).
    `claim` names what the answer claims of all decisions: optimality, bound or infeasibility, None where nothing; or
    the part of it that is open.
    `violations`: claims that are false.
    """

    proven_us: float
    claim: str | None
    is_proven: bool
    violations: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The claim and what it rests on."""
        if self.claim is None:
            return NOTHING
        if self.violations:
            return f"{self.claim}: claimed, and false"
        return f"{self.claim}: proven" if self.is_proven else f"{self.claim}: claimed, not proven"


def prove(problem: Problem, plan: PlanFile, verdict: Verdict) -> Proof:
    """Weigh an answer's claims; `verdict` is `check_plan`'s of the same answer."""
    if plan.kind != problem.KIND or (plan.decision is not None and verdict.objective_us is None):
        return Proof(0.0, None, False)
    low, high = _best_us(problem, plan.bound_us)
    low = max(low, verdict.certified_us or 0.0)
    if plan.status is Status.INFEASIBLE:
        return _impossible(problem, plan, low, high)
    if plan.bound_us is None:
        return Proof(low, None, False)
    claim = "optimality" if plan.status is Status.OPTIMAL else "bound"
    told = verdict.objective_us is not None and plan.bound_us > verdict.objective_us
    false = () if told or plan.bound_us <= high else (f"bound_us is {plan.bound_us}, but a decision takes {high:.0f}",)
    return Proof(low, claim, plan.bound_us <= low, false)


def _best_us(problem: Problem, claimed: float | None) -> Range:
    """What the judge of the kind proves, at least that nothing ends before the base."""
    judge = judge_of(problem.KIND)
    low, high = (0.0, math.inf) if judge.best_us is None else judge.best_us(problem, claimed)
    if judge.base_us is not None:
        base = judge.base_us(problem)
        low = max(low, base[0] if isinstance(base, tuple) else base)
    return low, high


def _impossible(problem: Problem, plan: PlanFile, low: float, high: float) -> Proof:
    """Infeasibility, with its least budget where that is not compared with the judge's own (`check_plan` does)."""
    judge, field = judge_of(problem.KIND), KINDS[problem.KIND].budget
    least = None if judge.least_budget_bytes is None or field is None else judge.least_budget_bytes(problem)
    known = low == math.inf or (least is not None and field is not None and least[0] > getattr(problem, field))
    if high < math.inf:
        return Proof(low, "infeasibility", False, (f"status is infeasible, but a decision takes {high:.0f} us",))
    if not known or field is None:
        return Proof(low, "infeasibility", known)
    if least is not None:
        return Proof(low, *_named(plan, least))
    holds, violations = _least_holds(problem, plan, field)
    return Proof(low, "infeasibility", holds, violations)


def _named(plan: PlanFile, least: tuple[int, int]) -> tuple[str, bool]:
    """What is claimed of infeasibility that is certain, and whether the least budget is known to be what it is called.

    Between the two numbers that the judge knows it may be anything.
    """
    named = plan.least_budget_bytes
    at_least = said_least(plan.reason)[0] == "at least"
    if named is not None and named <= least[0] and (at_least or named >= least[1]):
        return "infeasibility", True
    return "infeasibility proven, its least budget", False


def _least_holds(problem: Problem, plan: PlanFile, field: str) -> tuple[bool, tuple[str, ...]]:
    """Whether nothing fits one byte below the least budget claimed and, called exact, something may fit at it."""
    least, best_us = plan.least_budget_bytes, judge_of(problem.KIND).best_us
    if least is None or best_us is None or least <= getattr(problem, field):
        return False, ()  # a violation of the plan file already
    low, high = best_us(replace(problem, **{field: least - 1}), None)
    if high < math.inf:
        return False, (f"least_budget_bytes is {least}, but a decision fits into {least - 1} bytes",)
    if said_least(plan.reason)[0] == "exactly" and best_us(replace(problem, **{field: least}), None)[0] == math.inf:
        return False, (f"least_budget_bytes is exactly {least}, but no decision fits into {least} bytes",)
    return low == math.inf, ()
