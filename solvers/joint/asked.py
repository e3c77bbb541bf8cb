"""Linear models of the joint planner, solved: Ctrl-C while an engine works ends all that asks, not one model."""

from solvers.engines import Answer, LinearModel, solve
from solvers.engines.model import Basis
from solvers.ir.solution import Limits


def solved(model: LinearModel, limits: Limits, engine: str, basis: Basis | None = None) -> Answer:
    """What the engine answers; raises `KeyboardInterrupt` where that ended it."""
    answer = solve(model, limits, engine=engine, basis=basis)
    if answer.interrupted:
        raise KeyboardInterrupt
    return answer
