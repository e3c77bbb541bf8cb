"""GLOP (OR-tools, open source): linear programs of some hundred rows, in a few milliseconds each.

What prices rest on is asked dozens of times a second, each a little different; at this size building a `LinearModel`
takes longer than solving. The first one imports part of ortools (50 ms).
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, csr_matrix

from solvers.engines.model import FloatArray
from solvers.ir.errors import EngineMissing


class Priced(NamedTuple):
    """The most that is reached, with which amounts, and what one more unit of each row's limit is worth."""

    most: float
    amounts: FloatArray
    prices: FloatArray


def most(worth: FloatArray, rows: csr_array, limits: FloatArray, upper: FloatArray | None = None) -> Priced | None:
    """The most of worth · x with rows · x ≤ limits, 0 ≤ x ≤ `upper`; None where there is none, or the engine fails.

    Floats: a proof checks what it takes from here in integers.
    """
    try:
        from ortools.linear_solver.python.model_builder_helper import ModelBuilderHelper, ModelSolverHelper
    except ImportError as error:
        raise EngineMissing(f"engine glop: ortools does not import ({error}): pip install ortools") from error
    count, many, solver = len(worth), len(limits), ModelSolverHelper("glop")
    model: Any = ModelBuilderHelper()  # its stub knows no shapes of arrays
    highest = np.full(count, np.inf) if upper is None else upper
    model.fill_model_from_sparse_data(
        np.zeros(count), highest, -worth, np.full(many, -np.inf), limits.astype(np.float64), csr_matrix(rows)
    )
    solver.solve(model)
    if not solver.has_solution():
        return None
    return Priced(-solver.objective_value(), np.array(solver.variable_values()), -np.array(solver.dual_values()))
