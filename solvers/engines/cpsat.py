"""CP-SAT (OR-tools, open source): linear models in integers, and native models with intervals.

Importing this module imports ortools (half a second): do it where you solve, not at the top of a room. Rooms build
interval models with `CpModel` from here and hand them to `solve_cpsat`, and no room touches the engine's parameters.
"""

import importlib.metadata
import threading
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from solvers.engines.answer import Answer
from solvers.engines.claim import Claim, Verdict, judge
from solvers.engines.model import FloatArray, LinearModel
from solvers.engines.scaling import IntegerModel, integer_model
from solvers.engines.search import Progress, Report, follow
from solvers.ir.errors import EngineMissing, InvalidProblem
from solvers.ir.solution import Limits, Status, Watch

try:
    from ortools.sat.python.cp_model import (
        INT_MAX,
        INT_MIN,
        BoolVarT,
        CpModel,
        CpSolver,
        CpSolverSolutionCallback,
        Domain,
        IntervalVar,
        IntVar,
        LinearExpr,
        LinearExprT,
        LiteralT,
    )
except ImportError as error:
    raise EngineMissing(
        f"engine cpsat needs the package ortools, which does not import ({error}): pip install ortools"
    ) from error

__all__ = [
    "BoolVarT",
    "CpAnswer",
    "CpModel",
    "Domain",
    "IntVar",
    "IntervalVar",
    "LinearExpr",
    "LinearExprT",
    "LiteralT",
    "solve",
    "solve_cpsat",
]

ENGINE = f"CP-SAT {importlib.metadata.version('ortools')}"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CpAnswer:
    """Answer about a native CP-SAT model, with the promises of `Answer`; objective and bound are exact integers."""

    status: Status
    objective: int | None
    bound: int | None
    reason: str | None
    engine: str
    solve_time_s: float
    interrupted: bool
    _solver: CpSolver

    def value(self, expression: LinearExprT) -> int:
        """Value of a variable, literal or linear expression in the solution; ValueError where there is none."""
        if self.objective is None:
            raise ValueError(f"there is no solution to read: the status is {self.status.value}")
        return int(self._solver.value(expression))

    def holds(self, literal: LiteralT) -> bool:
        """Whether a literal (a Boolean variable or its negation) is true in the solution."""
        return self.value(literal) != 0


def solve_cpsat(model: CpModel, limits: Limits, watch: Watch | None = None) -> CpAnswer:
    """Solve a native model (minimisation with integer coefficients, or no objective: then it is 0).

    `limits.work` is CP-SAT's deterministic time, `threads` its workers: with one worker the same seed and work give the
    same answer, provided that `time_s` does not end it first. Hints are set on the model by `add_hint`. `watch` sees
    objectives and bounds; True from it, or Ctrl-C, ends the search and keeps the best solution.
    """
    _refuse_other_objectives(model)
    run = _Run(model, limits)
    finished = follow(run, run.stop, watch)
    status, objective, bound = finished.result, run.objective(finished.result), run.bound(finished.result)
    reason = finished.stopped or "the time or work limit was reached"
    if objective is not None and bound == objective:
        status, reason = Status.OPTIMAL, ""
    elif objective is not None and bound is not None and bound > objective:
        status, bound, reason = Status.FEASIBLE, None, f"its bound {bound} contradicts its solution of {objective}"
    elif status is Status.OPTIMAL:
        status, reason = Status.FEASIBLE, "it stopped at the gap asked for"
    elif status is Status.INFEASIBLE:
        bound, reason = None, "it proved that there is no solution"
    return CpAnswer(
        status=status,
        objective=objective,
        bound=bound,
        reason=f"{ENGINE}: {reason}" if reason else None,
        engine=ENGINE,
        solve_time_s=run.solver.wall_time,
        interrupted=finished.interrupted,
        _solver=run.solver,
    )


def solve(model: LinearModel, limits: Limits, watch: Watch | None = None, start: FloatArray | None = None) -> Answer:
    """Solve a linear model on CP-SAT; raises NotIntegral where it cannot be stated exactly in integers."""
    scaled = integer_model(model)
    native, columns = _native(scaled, start)
    scale, offset = scaled.cost_scale, Fraction(model.offset)
    seen = None if watch is None else _rescaled(watch, scale, offset)
    answer = solve_cpsat(native, limits, seen)
    found = answer.objective is not None
    x = np.array([answer.value(column) for column in columns], dtype=np.float64) if found else None
    verdicts = {Status.OPTIMAL: Verdict.PROVEN, Status.INFEASIBLE: Verdict.INFEASIBLE}
    bound = None if answer.bound is None else float(answer.bound / scale + offset)
    claim = Claim(
        engine=ENGINE, verdict=verdicts.get(answer.status, Verdict.STOPPED), x=x, bound=bound, why=answer.reason
    )
    return replace(judge(model, claim, start), interrupted=answer.interrupted)


class _Run:
    """One search of CP-SAT, and what it is known to have proved."""

    def __init__(self, model: CpModel, limits: Limits) -> None:
        self._model = model
        self._proved = _least_objective(model)
        self._stopped = threading.Event()
        self.solver = CpSolver()
        parameters = self.solver.parameters
        parameters.max_time_in_seconds = limits.time_s
        parameters.num_workers = limits.threads
        parameters.random_seed = limits.seed
        parameters.relative_gap_limit = limits.gap
        parameters.absolute_gap_limit = 0.0
        parameters.catch_sigint_signal = False  # Ctrl-C is the caller's thread's: see `follow`
        if limits.work is not None:
            parameters.max_deterministic_time = limits.work

    def stop(self) -> None:
        """End the search soon; one that is about to begin is caught at its first news."""
        self._stopped.set()
        self.solver.stop_search()

    def __call__(self, report: Report) -> Status:
        solver = self.solver

        def bounded(bound: float) -> None:
            self._proved = max(self._proved, round(bound))
            report(Progress(None, bound))
            if self._stopped.is_set():
                solver.stop_search()

        solver.best_bound_callback = bounded
        status = solver.solve(self._model, _Solutions(report)).name
        if status == "MODEL_INVALID":
            raise InvalidProblem(f"CP-SAT refused the model: {self._model.validate().strip().splitlines()[0]}")
        return Status[status]

    def objective(self, status: Status) -> int | None:
        """Exact objective of the solution, if there is one."""
        return round(self.solver.objective_value) if status in (Status.OPTIMAL, Status.FEASIBLE) else None

    def bound(self, status: Status) -> int | None:
        """What was proved; a search that ended before it began reports 0 whatever the objective, so it is not asked."""
        if status not in (Status.OPTIMAL, Status.FEASIBLE):
            return self._proved
        offset = round(self._model.proto.objective.offset) if self._model.proto.has_objective() else 0
        return max(self._proved, self.solver.response_proto.inner_objective_lower_bound + offset)


class _Solutions(CpSolverSolutionCallback):
    """Passes every better solution's objective on."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self._report = report

    def on_solution_callback(self) -> None:
        """Called by CP-SAT at each solution."""
        self._report(Progress(self.objective_value, self.best_objective_bound))


def _refuse_other_objectives(model: CpModel) -> None:
    proto = model.proto  # reading an absent field of it would create the field, so ask first
    if proto.has_floating_point_objective():
        raise InvalidProblem("a CP-SAT model's objective has fractional coefficients: scale them to integers")
    if proto.has_objective() and proto.objective.scaling_factor < 0:
        raise InvalidProblem(
            "a CP-SAT model maximises: minimise the negated objective, so that bounds are lower bounds"
        )


def _least_objective(model: CpModel) -> int:
    """The objective with every variable at its better limit: a bound before any search."""
    if not model.proto.has_objective():
        return 0
    objective, variables = model.proto.objective, model.proto.variables
    total = round(objective.offset)
    for variable, cost in zip(objective.vars, objective.coeffs, strict=True):
        domain = list(variables[variable].domain)  # as it stands, its [-1] reads what lies before it in memory
        total += cost * (domain[0] if cost > 0 else domain[-1])
    return total


def _native(scaled: IntegerModel, start: FloatArray | None) -> tuple[CpModel, list[IntVar]]:
    model = CpModel()
    columns = [model.new_int_var(low, high, "") for low, high in zip(scaled.lower, scaled.upper, strict=True)]
    for row in scaled.rows:
        if row.lower is not None or row.upper is not None:
            total = LinearExpr.weighted_sum([columns[j] for j in row.columns], row.values)
            model.add_linear_constraint(
                total, INT_MIN if row.lower is None else row.lower, INT_MAX if row.upper is None else row.upper
            )
    model.minimize(LinearExpr.weighted_sum(columns, scaled.cost))
    if start is not None:
        for j in np.flatnonzero(np.isfinite(start)):
            model.add_hint(columns[j], min(max(round(float(start[j])), scaled.lower[j]), scaled.upper[j]))
    return model, columns


def _rescaled(watch: Watch, scale: Fraction, offset: Fraction) -> Watch:
    """The caller's watch, in the linear model's units."""

    def unscaled(value: float | None) -> float | None:
        return None if value is None else float(Fraction(value) / scale + offset)

    return lambda incumbent, bound, elapsed_s: watch(unscaled(incumbent), unscaled(bound), elapsed_s)
