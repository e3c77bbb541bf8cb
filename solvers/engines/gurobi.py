"""Gurobi (commercial), natively through gurobipy: MathOpt's way to it kills the interpreter.

The licence that comes with gurobipy takes 2000 columns and 2000 rows (a range row counts twice), not for production.
"""

import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np

from solvers.engines.answer import Answer
from solvers.engines.claim import Claim, Verdict, judge
from solvers.engines.model import BoolArray, FloatArray, LinearModel
from solvers.engines.search import Progress, Report, follow
from solvers.ir.errors import BayplanError, EngineMissing
from solvers.ir.solution import Limits, Watch

try:
    import gurobipy
    from gurobipy import GRB
except ImportError as error:
    raise EngineMissing(f"engine gurobi needs the package gurobipy, which does not import ({error})") from error

ENGINE = f"Gurobi {'.'.join(map(str, gurobipy.gurobi.version()))}"

NEWS_S = 0.1
"""Least time between two reports of bounds."""

REFUSALS = frozenset({10009, 10010, 10022, 10023, 10028, 10030})
"""Error numbers that mean the licence: none or expired, size limit, token server unreachable, job refused, cloud."""

_WHY = {
    GRB.TIME_LIMIT: "the time limit was reached",
    GRB.WORK_LIMIT: "the work limit was reached",
    GRB.INTERRUPTED: "it was interrupted",
    GRB.MEM_LIMIT: "it ran out of memory",
    GRB.NUMERIC: "it gave up over numerical trouble",
}
_VERDICTS = {GRB.OPTIMAL: Verdict.PROVEN, GRB.INFEASIBLE: Verdict.INFEASIBLE, GRB.UNBOUNDED: Verdict.UNBOUNDED}


class LicenceRefused(BayplanError):
    """Gurobi will not solve this model under the licence that it found; the text is one sentence with its own words."""


def solve(model: LinearModel, limits: Limits, watch: Watch | None = None, start: FloatArray | None = None) -> Answer:
    """Solve on Gurobi; `limits.work` is Gurobi's own work unit. Raises LicenceRefused."""
    try:
        native = _Native(_environment(limits), model)
        native.start_at(start)
        finished = follow(native.run, native.stop, watch)
        claim = finished.result
        by_gurobi = finished.stopped is None and native.was_interrupted()  # its own handler saw Ctrl-C before ours
        if finished.stopped is not None and claim.verdict is Verdict.STOPPED:
            claim = replace(claim, why=f"{ENGINE}: {finished.stopped}")
        answer = judge(model, claim, start, native.with_integers_fixed)
        native.dispose()  # not when `follow` raised: Gurobi may still run then, and would crash without its model
        return replace(answer, interrupted=finished.interrupted or by_gurobi)
    except gurobipy.GurobiError as error:
        raise _translated(error, model) from error


def licence_state() -> str:
    """What the licence allows, in words, by asking Gurobi to take 2001 columns."""
    try:
        with gurobipy.Env(params={"OutputFlag": 0}) as environment, gurobipy.Model(env=environment) as probe:
            expiry = str(probe.LicenseExpiration)
            probe.addMVar(2001)
            try:
                probe.optimize()
                size = "no size limit"
            except gurobipy.GurobiError as error:
                if error.errno != GRB.Error.SIZE_LIMIT_EXCEEDED:
                    raise
                size = "bundled, limited to 2000 columns and 2000 rows, not for production"
    except gurobipy.GurobiError as error:
        return f"refused: {str(error).strip()}"
    return size if expiry.startswith("9999") else f"{size}, until {expiry[:4]}-{expiry[4:6]}-{expiry[6:]}"


class _Native:
    """The model in Gurobi's own arrays; used in one thread at a time, except for `stop`."""

    def __init__(self, environment: gurobipy.Env, model: LinearModel) -> None:
        from scipy.sparse import csr_array  # a tenth of a second that only Gurobi's users pay

        self._model, self._stopped, self._reported = model, threading.Event(), 0.0
        self._environment = environment
        self._gurobi: Any = gurobipy.Model(model.name, env=environment)
        kinds = np.where(model.integer, GRB.INTEGER, GRB.CONTINUOUS)
        self._x: Any = self._gurobi.addMVar(
            model.columns, lb=model.lower, ub=model.upper, obj=model.cost, vtype=kinds.tolist()
        )
        self._gurobi.ObjCon = model.offset
        matrix = csr_array(
            (model.row_value, model.row_index, model.row_start), shape=(model.rows, model.columns), dtype=np.float64
        )
        equal = model.row_lower == model.row_upper
        self._parts = [
            self._add(matrix, equal, "=", model.row_lower),
            self._add(matrix, ~equal & np.isfinite(model.row_lower), ">", model.row_lower),
            self._add(matrix, ~equal & np.isfinite(model.row_upper), "<", model.row_upper),
        ]

    def dispose(self) -> None:
        """Free Gurobi's memory now; a licence seat is returned with the environment."""
        self._gurobi.dispose()
        self._environment.dispose()

    def start_at(self, start: FloatArray | None) -> None:
        """Give the known columns of a first solution."""
        if start is not None:
            self._x.Start = np.where(np.isfinite(start), start, GRB.UNDEFINED)

    def stop(self) -> None:
        """End the search soon."""
        self._stopped.set()
        self._gurobi.terminate()

    def was_interrupted(self) -> bool:
        """Whether the last search was ended from outside."""
        return bool(self._gurobi.Status == GRB.INTERRUPTED)

    def run(self, report: Report) -> Claim:
        """Optimise; tell an unbounded model from an infeasible one."""
        gurobi = self._gurobi
        gurobi.optimize(self._callback(report))
        if gurobi.Status == GRB.INF_OR_UNBD:
            gurobi.Params.DualReductions = 0
            gurobi.optimize(self._callback(report))
        if gurobi.Status == GRB.UNBOUNDED and gurobi.IsMIP:
            return Claim(engine=ENGINE, verdict=Verdict.UNBOUNDED if self._is_feasible() else Verdict.INFEASIBLE)
        return self._claim()

    def with_integers_fixed(self, x: FloatArray) -> Claim:
        """The LP that is left when the integer columns stand."""
        whole = self._model.integer
        self._x.LB, self._x.UB = np.where(whole, x, self._model.lower), np.where(whole, x, self._model.upper)
        self._gurobi.optimize()
        return self._claim()

    def _add(self, matrix: Any, chosen: BoolArray, sense: str, limits: FloatArray) -> tuple[BoolArray, Any]:
        rows = np.flatnonzero(chosen)
        added = self._gurobi.addMConstr(matrix[rows], self._x, sense, limits[rows]) if len(rows) else None
        return chosen, added

    def _callback(self, report: Report) -> Any:
        def called(gurobi: Any, where: int) -> None:
            if self._stopped.is_set():
                gurobi.terminate()
            if where == GRB.Callback.MIP:
                if time.monotonic() - self._reported < NEWS_S:
                    return  # Gurobi calls thousands of times a second
                self._reported = time.monotonic()
                best, bound = gurobi.cbGet(GRB.Callback.MIP_OBJBST), gurobi.cbGet(GRB.Callback.MIP_OBJBND)
                report(Progress(_finite(best), _finite(bound)))
            elif where == GRB.Callback.MIPSOL:
                report(Progress(_finite(gurobi.cbGet(GRB.Callback.MIPSOL_OBJ)), None))

        return called

    def _is_feasible(self) -> bool:
        """An unbounded relaxation says nothing about the integers: look for any solution."""
        self._gurobi.setObjective(0.0)
        self._gurobi.optimize()
        return bool(self._gurobi.SolCount)

    def _claim(self) -> Claim:
        gurobi = self._gurobi
        verdict = _VERDICTS.get(gurobi.Status, Verdict.STOPPED)
        proven = verdict is Verdict.PROVEN
        has_bound = gurobi.IsMIP and verdict in (Verdict.PROVEN, Verdict.STOPPED)
        duals = self._row_duals() if proven and not gurobi.IsMIP else None
        return Claim(
            engine=ENGINE,
            verdict=verdict,
            x=np.array(self._x.X, dtype=np.float64) if gurobi.SolCount else None,
            bound=_finite(gurobi.ObjBound) if has_bound else gurobi.ObjVal if proven else None,
            row_duals=duals,
            why=None if proven else f"{ENGINE}: {_WHY.get(gurobi.Status, f'status {gurobi.Status}')}",
        )

    def _row_duals(self) -> FloatArray:
        """One dual a row: of a range row at most one side is active, so that the sum of both is its dual."""
        duals = np.zeros(self._model.rows)
        for chosen, rows in self._parts:
            if rows is not None:
                duals[chosen] += rows.Pi
        return duals


def _environment(limits: Limits) -> gurobipy.Env:
    """A silent environment (started without parameters it would print a banner)."""
    parameters: dict[str, Any] = {
        "OutputFlag": 0,
        "TimeLimit": min(limits.time_s, GRB.INFINITY),
        "Threads": limits.threads,
        "Seed": min(limits.seed, GRB.MAXINT),
        "MIPGap": limits.gap,
    }
    if limits.work is not None:
        parameters["WorkLimit"] = limits.work
    return gurobipy.Env(params=parameters)


def _finite(value: float) -> float | None:
    return None if abs(value) >= GRB.INFINITY else float(value)


def _translated(error: gurobipy.GurobiError, model: LinearModel) -> BayplanError:
    words = str(error).strip().rstrip(".")
    if error.errno in REFUSALS:
        size = f"{model.columns} columns and {model.rows} rows"
        return LicenceRefused(f"{ENGINE}'s licence refuses this model of {size} (error {error.errno}: {words})")
    return BayplanError(f"{ENGINE} could not take {model.name}: {words} (error {error.errno}); try the engine highs")
