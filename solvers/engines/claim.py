"""From what an engine claims to what we promise: its solution is re-checked, its bound is compared, in one place."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from solvers.engines.answer import Answer, integral_bound
from solvers.engines.model import TOLERANCE, Basis, FloatArray, LinearModel
from solvers.ir.errors import InvalidProblem
from solvers.ir.solution import Status


class Verdict(Enum):
    """An engine's own verdict on its run; `Claim.why` says which limit ended a STOPPED one."""

    PROVEN = "proved its solution optimal within the gap asked for"
    INFEASIBLE = "proved that there is no solution"
    UNBOUNDED = "found that the objective falls without limit"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Claim:
    """An engine's own words, before anyone checked them; -inf and inf bounds mean none."""

    engine: str
    verdict: Verdict
    x: FloatArray | None = None
    bound: float | None = None
    row_duals: FloatArray | None = None
    basis: Basis | None = None
    why: str | None = None


Polish = Callable[[FloatArray], Claim]
"""Solves the model again with its integer columns fixed at these values."""


def judge(model: LinearModel, claim: Claim, start: FloatArray | None = None, polish: Polish | None = None) -> Answer:
    """Turn a claim into promises.

    Integer columns are rounded and everything is checked exactly. Where rounding breaks a row of a mixed model,
    `polish` finds the continuous columns anew. A feasible complete `start` stands in if the engine has nothing better.
    """
    if claim.verdict is Verdict.UNBOUNDED:
        raise InvalidProblem(
            f"{model.name}: {claim.engine} found that the objective falls without limit: give its columns finite limits"
        )
    x, broken = _checked(model, claim, polish)
    x = _better(model, x, start)
    if x is None and claim.verdict is Verdict.INFEASIBLE:
        return Answer(
            status=Status.INFEASIBLE, engine=claim.engine, reason=f"{claim.engine} proved that there is no solution"
        )
    if x is None:
        reason = broken or f"{claim.why or f'{claim.engine} stopped'}; no solution was found"
        return Answer(
            status=Status.UNKNOWN, engine=claim.engine, bound=_rounded(model, _bound(model, claim)), reason=reason
        )
    return _with_solution(model, claim, x, broken)


def _checked(model: LinearModel, claim: Claim, polish: Polish | None) -> tuple[FloatArray | None, str | None]:
    """The claimed solution if it passes, rounded or polished; else None and a sentence."""
    if claim.x is None:
        return None, None
    x = snapped(model, claim.x)
    broken = model.violations(x)
    if broken and polish is not None and not model.integer.all() and model.integer.any():
        again = polish(x)
        if again.x is not None:
            x = snapped(model, np.where(model.integer, x, again.x))
            broken = model.violations(x)
    if not broken:
        return x, None
    return None, f"{claim.engine}'s solution fails our check: {broken[0]}; scale the model or try the engine cpsat"


def snapped(model: LinearModel, x: FloatArray) -> FloatArray:
    """x with integer columns rounded (when they nearly are integers) and tiny excesses over column limits cut off."""
    nearest = np.round(x)
    x = np.where(model.integer & (np.abs(x - nearest) <= 10 * TOLERANCE), nearest, x)
    cut = np.clip(x, model.lower, model.upper)
    return np.where(np.abs(cut - x) <= TOLERANCE * np.maximum(1.0, np.abs(x)), cut, x) + 0.0  # + 0.0 turns −0 into 0


def _better(model: LinearModel, x: FloatArray | None, start: FloatArray | None) -> FloatArray | None:
    """The cheaper of solution and start, the start only if it is complete and feasible."""
    if start is None or not np.all(np.isfinite(start)) or model.violations(start):
        return x
    if x is not None and model.objective(x) <= model.objective(start):
        return x
    return start


def _bound(model: LinearModel, claim: Claim) -> float | None:
    """The claimed bound, by the duals where there are any; None where there is none."""
    bound = claim.bound
    if claim.row_duals is not None:
        proven = model.dual_bound(claim.row_duals)
        bound = proven if np.isfinite(proven) else bound
    return None if bound is None or not np.isfinite(bound) else float(bound)


def _rounded(model: LinearModel, bound: float | None) -> float | None:
    """The bound lifted to the next integer where every objective is one."""
    if bound is None or not model.objective_is_integral:
        return bound
    return max(bound, float(integral_bound(bound)))


def _with_solution(model: LinearModel, claim: Claim, x: FloatArray, broken: str | None) -> Answer:
    objective = model.objective(x)
    allowed = TOLERANCE * max(1.0, abs(objective))
    bound, reason = _bound(model, claim), broken or claim.why
    if claim.verdict is Verdict.INFEASIBLE:
        bound, reason = None, f"{claim.engine} calls the model infeasible, but the start given to it is a solution"
    elif bound is None and claim.verdict is Verdict.PROVEN:
        reason = f"{claim.engine} gave no bound that can be checked"
    elif bound is not None and bound > objective + allowed:
        bound, reason = (
            None,
            f"{claim.engine}'s bound {bound} contradicts a solution of {objective}: no bound is claimed",
        )
    bound = None if bound is None else _rounded(model, min(bound, objective))
    exact = 0.0 if model.objective_is_integral else allowed
    proven = bound is not None and objective - bound <= exact
    answer = Answer(
        status=Status.OPTIMAL if proven else Status.FEASIBLE,
        engine=claim.engine,
        objective=objective,
        bound=bound,
        x=_read_only(x),
        reason=None if proven else reason or f"{claim.engine} stopped at the gap asked for",
    )
    return _with_duals(model, claim, answer) if claim.row_duals is not None and proven else answer


def _with_duals(model: LinearModel, claim: Claim, answer: Answer) -> Answer:
    assert claim.row_duals is not None
    return replace(
        answer,
        row_duals=_read_only(claim.row_duals.copy()),
        reduced_costs=_read_only(model.reduced_costs(claim.row_duals)),
        basis=claim.basis,
    )


def _read_only(array: FloatArray) -> FloatArray:
    array = array.copy()
    array.flags.writeable = False
    return array
