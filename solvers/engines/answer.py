"""What an engine answers about a linear model, as promises that hold for every engine."""

import math
from dataclasses import dataclass

from solvers.engines.model import Basis, FloatArray
from solvers.ir.solution import Status


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Answer:
    """One answer; absent things are None.

    status: OPTIMAL only if the engine proved it, `x` passes our exact check and `bound` meets `objective` (exactly if
        the objective is always an integer, else within 1e-6·max(1, |objective|)). FEASIBLE: `x` passes the check.
        INFEASIBLE: the engine proved it. UNKNOWN: neither within the limits.
    objective: exact cost of `x`, computed by us.
    bound: a lower bound on the optimum, never above `objective`. From a float engine it holds within its tolerances
        (about 1e-6 relative), from CP-SAT exactly; where the objective is always an integer it is one already.
    x: the solution, integral where the model asks; read-only.
    row_duals, reduced_costs: of a pure LP solved to optimality; `LinearModel.dual_bound(row_duals)` re-adds the proof.
    basis: of the same, where the engine gives one: a `solve` of the same rows within other limits may begin with it.
    engine: what computed it, with version. reason: a sentence on what the status does not say. fallback: a sentence if
        another engine was asked for and refused its licence. interrupted: Ctrl-C ended it, the caller should too.
    """

    status: Status
    engine: str
    objective: float | None = None
    bound: float | None = None
    x: FloatArray | None = None
    reason: str | None = None
    row_duals: FloatArray | None = None
    reduced_costs: FloatArray | None = None
    basis: Basis | None = None
    fallback: str | None = None
    solve_time_s: float = 0.0
    interrupted: bool = False

    @property
    def gap(self) -> float | None:
        """(objective − bound) / |objective|; 0 where they meet, None where one is unknown."""
        if self.objective is None or self.bound is None:
            return None
        if self.objective == self.bound:
            return 0.0
        return (self.objective - self.bound) / abs(self.objective) if self.objective else math.inf


def integral_bound(bound: float, tolerance: float = 1e-6, relative: float = 1e-9) -> int:
    """The least integer that a float bound proves: an objective that is always an integer cannot lie below it.

    `bound` is trusted within `tolerance + relative · |bound|`: 6.0000003 gives 6, 6.1 gives 7. Raise the tolerances for
    a model whose coefficients span many orders of magnitude. Infinite bounds are refused (OverflowError).
    """
    return math.ceil(bound - tolerance - relative * abs(bound))
