"""Linear models on HiGHS, CP-SAT and Gurobi, with limits, bounds and statuses that mean the same on all of them.

Importing this imports no engine; each is imported (or, HiGHS, started) by the first solve that needs it.
"""

from solvers.engines.answer import Answer, integral_bound
from solvers.engines.builder import ModelBuilder
from solvers.engines.choice import NAMES, choose, solve
from solvers.engines.listing import EngineInfo, engines
from solvers.engines.model import LinearModel, Violation

__all__ = [
    "NAMES",
    "Answer",
    "EngineInfo",
    "LinearModel",
    "ModelBuilder",
    "Violation",
    "choose",
    "engines",
    "integral_bound",
    "solve",
]
