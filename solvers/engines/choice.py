"""One function for all engines: which one, is it there, and what if it refuses."""

import difflib
import importlib
import importlib.metadata
import importlib.util
import time
from dataclasses import replace
from types import ModuleType

import numpy as np

from solvers.engines.answer import Answer
from solvers.engines.claim import Claim, Verdict, judge
from solvers.engines.model import Basis, FloatArray, LinearModel
from solvers.ir.errors import EngineMissing, InvalidInput
from solvers.ir.solution import Limits, Status, Watch

PACKAGES = {"highs": "highspy", "cpsat": "ortools", "gurobi": "gurobipy"}
"""Engines by name, with the package that holds each."""

NAMES = (*PACKAGES, "auto")


def solve(
    model: LinearModel,
    limits: Limits | None = None,
    engine: str = "auto",
    watch: Watch | None = None,
    start: FloatArray | None = None,
    basis: Basis | None = None,
) -> Answer:
    """Solve a linear model.

    engine: highs, cpsat, gurobi or auto (see `choose`). A missing engine raises EngineMissing; CP-SAT raises
        NotIntegral (an InvalidInput) for a model without an exact integer form; only a refused Gurobi licence makes
        another engine answer.
    watch: sees (incumbent, bound, elapsed seconds) at all news and every fifth of a second; True stops the search.
    start: a solution to begin with, NaN where unknown; the answer is never worse than a complete feasible one.
    basis: of a linear program with the same rows and columns, whose limits may differ: HiGHS begins there, which saves
        most of its steps; other engines do without.
    Raises InvalidProblem for an unbounded model. Ctrl-C ends the search and keeps its best solution.
    """
    limits = Limits() if limits is None else limits
    started = time.perf_counter()
    start = None if start is None else _complete_start(model, start)
    name = choose(model, engine)
    if (contradiction := model.contradiction()) is not None:
        answer = Answer(status=Status.INFEASIBLE, engine=name, reason=contradiction)
    elif model.columns == 0:
        answer = judge(model, Claim(engine=name, verdict=Verdict.PROVEN, x=np.zeros(0), bound=model.offset))
    else:
        answer = _solve_on(name, model, limits, watch, start, basis)
    return replace(answer, solve_time_s=time.perf_counter() - started)


def choose(model: LinearModel, engine: str = "auto") -> str:
    """The engine that will be asked; raises InvalidInput for an unknown name and EngineMissing for an absent one.

    auto is HiGHS, whose bounds come from linear relaxations, which suits sizes and times; CP-SAT for pure logic (every
    column 0/1, every coefficient ±1), where learning clauses beats relaxations, and where HiGHS is not installed. Never
    Gurobi: its licence would make answers differ between machines.
    """
    if engine not in NAMES:
        near = difflib.get_close_matches(engine, NAMES, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise InvalidInput(f"engine {engine!r} is unknown: {hint}choose one of {', '.join(NAMES)}")
    if engine != "auto":
        _require(engine)
        return engine
    present = [name for name in ("highs", "cpsat") if is_present(name)]
    if not present:
        raise EngineMissing("no open engine is installed: pip install highspy or ortools")
    return "cpsat" if "cpsat" in present and _is_logic(model) else present[0]


def is_present(engine: str) -> bool:
    """Whether the engine's package is installed; nothing is imported."""
    return importlib.util.find_spec(PACKAGES[engine]) is not None


def _require(engine: str) -> None:
    if not is_present(engine):
        package = PACKAGES[engine]
        raise EngineMissing(
            f"engine {engine} needs the package {package}, which is not installed: pip install {package}"
        )


def _is_logic(model: LinearModel) -> bool:
    binary = model.integer & (model.lower >= 0) & (model.upper <= 1)
    return bool(np.all(binary) and np.all(np.abs(model.row_value) == 1) and model.objective_is_integral)


def _driver(name: str) -> ModuleType:
    return importlib.import_module(f"solvers.engines.{name}")


def _solve_on(
    name: str,
    model: LinearModel,
    limits: Limits,
    watch: Watch | None,
    start: FloatArray | None,
    basis: Basis | None,
) -> Answer:
    driver = _driver(name)
    if name == "highs":
        from_basis: Answer = driver.solve(model, limits, watch, start, basis)
        return from_basis
    if name != "gurobi":
        answer: Answer = driver.solve(model, limits, watch, start)
        return answer
    try:
        answer = driver.solve(model, limits, watch, start)
    except driver.LicenceRefused as refusal:
        other = choose(model)
        answer = _solve_on(other, model, limits, watch, start, basis)
        note = f"{refusal}; {answer.engine} was used instead"
        return replace(
            answer,
            engine=f"{answer.engine} (gurobi asked, licence refused)",
            fallback=note,
            reason=note if answer.reason is None else f"{answer.reason}; {note}",
        )
    return answer


def _complete_start(model: LinearModel, start: FloatArray) -> FloatArray:
    values = np.asarray(start, dtype=np.float64)
    if values.shape != (model.columns,):
        raise InvalidInput(
            f"{model.name}: the start has shape {values.shape}, the model {model.columns} columns: give one each"
        )
    return values
