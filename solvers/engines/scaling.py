"""A linear model in integers only, exactly equivalent, or a sentence that says why there is none."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from solvers.engines.exact import integral
from solvers.engines.model import BoolArray, LinearModel
from solvers.ir.errors import InvalidInput

LIMIT = 2**61
"""CP-SAT computes in 64-bit integers; no row may reach beyond this at any corner of its columns' ranges."""


class NotIntegral(InvalidInput):
    """The model cannot be stated in CP-SAT's integers without changing it; the text says where and what to do."""


@dataclass(frozen=True, slots=True)
class IntegerRow:
    """lower ≤ Σ values·columns ≤ upper in integers; None where there is no limit."""

    columns: list[int]
    values: list[int]
    lower: int | None
    upper: int | None


@dataclass(frozen=True, slots=True)
class IntegerModel:
    """Minimise Σ cost·x; the linear model's objective is that divided by `cost_scale`, plus its offset."""

    lower: list[int]
    upper: list[int]
    rows: list[IntegerRow]
    cost: list[int]
    cost_scale: Fraction


def integer_model(model: LinearModel) -> IntegerModel:
    """The same model with every row and the objective scaled to integers; raises NotIntegral.

    Floats are taken for the fractions that they are, so that nothing is rounded: 0.5 becomes 1 after doubling its row,
    while 0.1 is 3602879701896397·2⁻⁵⁵ and is refused unless its row stays within 64 bits. A row's limits are rounded
    inwards after scaling, which cuts no integer point. Continuous columns must pass `implied_integers`.
    """
    _refuse_continuous(model)
    lower, upper = _ranges(model)
    rows = [_row(model, row, lower, upper) for row in range(model.rows)]
    cost, scale = _scaled(model.cost.tolist())
    reach = sum(abs(c) * max(abs(low), abs(high)) for c, low, high in zip(cost, lower, upper, strict=True))
    if reach > LIMIT:
        raise NotIntegral(
            f"{model.name}: CP-SAT needs integer costs, and these reach {float(reach):.3g} after exact scaling, beyond "
            "2⁶¹: round the costs or choose the engine highs"
        )
    return IntegerModel(lower, upper, rows, cost, scale)


def implied_integers(model: LinearModel) -> BoolArray:
    """Columns that are integral in some optimal solution: the integer ones and continuous ones with a proof.

    The proof: fix the integer columns anywhere. If every continuous column has integral limits, and every row that
    holds one is, up to a common factor, integral in its limits and integer columns and has there either one continuous
    column with coefficient ±1 or two with +1 and −1, then what is left is a linear program over a transposed network
    matrix. That is totally unimodular, with integral limits, so that it has an integral optimal vertex (or none). A
    model either passes as a whole or only its integer columns count.
    """
    loose = ~model.integer
    if not loose.any():
        return model.integer
    limits = np.concatenate([model.lower[loose], model.upper[loose]])
    if not np.all(integral(limits) | np.isinf(limits)):
        return model.integer
    touched = np.unique(model.entry_rows[loose[model.row_index]])
    return np.ones_like(loose) if all(_is_network(model, int(row)) for row in touched) else model.integer


def _is_network(model: LinearModel, row: int) -> bool:
    entries = slice(model.row_start[row], model.row_start[row + 1])
    values, loose = model.row_value[entries], ~model.integer[model.row_index[entries]]
    pair = values[loose]
    if len(pair) > 2 or (len(pair) == 2 and pair[0] != -pair[1]):
        return False
    unit = Fraction(abs(float(pair[0])))
    limits = [limit for limit in (model.row_lower[row], model.row_upper[row]) if np.isfinite(limit)]
    return all((Fraction(value) / unit).denominator == 1 for value in (*values[~loose].tolist(), *limits))


def _refuse_continuous(model: LinearModel) -> None:
    for column in np.flatnonzero(~implied_integers(model))[:1]:
        raise NotIntegral(
            f"{model.name}: CP-SAT needs integer data, and the continuous column {model.column_names[column]} cannot "
            "be proved integral: make it an integer column or choose the engine highs"
        )


def _ranges(model: LinearModel) -> tuple[list[int], list[int]]:
    for column in np.flatnonzero(~(np.isfinite(model.lower) & np.isfinite(model.upper)))[:1]:
        raise NotIntegral(
            f"{model.name}: CP-SAT needs finite limits, and column {model.column_names[column]} lies between "
            f"{model.lower[column]} and {model.upper[column]}: give it both limits or choose the engine highs"
        )
    lower = [math.ceil(value) for value in model.lower.tolist()]
    upper = [math.floor(value) for value in model.upper.tolist()]
    for column in np.flatnonzero(np.maximum(np.abs(model.lower), np.abs(model.upper)) > LIMIT)[:1]:
        raise NotIntegral(
            f"{model.name}: column {model.column_names[column]} reaches beyond 2⁶¹: scale the model for CP-SAT"
        )
    return lower, upper


def _row(model: LinearModel, row: int, lower: list[int], upper: list[int]) -> IntegerRow:
    entries = slice(model.row_start[row], model.row_start[row + 1])
    columns = model.row_index[entries].tolist()
    values, scale = _scaled(model.row_value[entries].tolist())
    least = sum(min(v * lower[j], v * upper[j]) for v, j in zip(values, columns, strict=True))
    most = sum(max(v * lower[j], v * upper[j]) for v, j in zip(values, columns, strict=True))
    if max(abs(least), abs(most), sum(map(abs, values))) > LIMIT:
        raise NotIntegral(
            f"{model.name}: CP-SAT needs integer coefficients, and row {model.row_names[row]} reaches beyond 2⁶¹ after "
            "exact scaling: round its coefficients or choose the engine highs"
        )
    low, high = model.row_lower[row], model.row_upper[row]
    return IntegerRow(
        columns,
        values,
        None if math.isinf(low) or Fraction(low) * scale <= least else math.ceil(Fraction(low) * scale),
        None if math.isinf(high) or Fraction(high) * scale >= most else math.floor(Fraction(high) * scale),
    )


def _scaled(values: list[float]) -> tuple[list[int], Fraction]:
    """The values times one positive factor that makes them the smallest integers possible, and the factor."""
    ratios = [value.as_integer_ratio() for value in values]
    scale = math.lcm(*(below for _, below in ratios))
    whole = [above * (scale // below) for above, below in ratios]
    shared = math.gcd(*whole) if whole else 0
    if shared > 1:
        return [value // shared for value in whole], Fraction(scale, shared)
    return whole, Fraction(scale)
