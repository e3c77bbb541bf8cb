"""CP-SAT's integers are the same model or no model: nothing is rounded on the way."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers.engines import ModelBuilder
from solvers.engines.scaling import NotIntegral, implied_integers, integer_model

EIGHTHS = st.integers(-40, 40).map(lambda n: n / 8)


@given(st.lists(EIGHTHS, min_size=3, max_size=3), EIGHTHS, st.lists(EIGHTHS, min_size=3, max_size=3))
def test_scaled_rows_and_costs_agree_with_the_original_at_every_point(
    values: list[float], limit: float, cost: list[float]
) -> None:
    builder = ModelBuilder()
    builder.columns(3, -1, 2, integer=True, cost=cost)
    builder.row(range(3), values, limit - 1.5, limit)
    model = builder.build()
    scaled = integer_model(model)
    (row,) = scaled.rows
    for point in itertools.product(range(-1, 3), repeat=3):
        total = sum(value * point[j] for value, j in zip(row.values, row.columns, strict=True))
        holds = (row.lower is None or total >= row.lower) and (row.upper is None or total <= row.upper)
        assert holds == (not model.violations(np.array(point, dtype=float)))
        price = Fraction(sum(c * x for c, x in zip(scaled.cost, point, strict=True)))
        assert float(price / scaled.cost_scale) == model.objective(np.array(point, dtype=float))


def test_common_factors_are_divided_out() -> None:
    """Megabytes given in bytes need no 64-bit arithmetic."""
    builder = ModelBuilder()
    builder.columns(2, 0, 1, integer=True)
    builder.row([0, 1], [2**40, 3 * 2**40], upper=3.5 * 2**40)
    (row,) = integer_model(builder.build()).rows
    assert (row.values, row.upper) == ([1, 3], 3)


def test_a_tenth_is_refused_where_its_true_value_does_not_fit() -> None:
    builder = ModelBuilder("tenths")
    builder.columns(2, 0, 1000, integer=True)
    builder.row([0, 1], [0.1, 1.0], upper=3, name="budget")
    with pytest.raises(
        NotIntegral, match=r"^tenths: CP-SAT needs integer coefficients, and row budget .* engine highs$"
    ):
        integer_model(builder.build())
    builder = ModelBuilder("tenths")
    builder.columns(2, 0, 1000, integer=True, cost=[0.1, 1])
    with pytest.raises(NotIntegral, match="CP-SAT needs integer costs"):
        integer_model(builder.build())


def test_unlimited_columns_are_refused_by_name() -> None:
    builder = ModelBuilder("open")
    builder.column(0, integer=True, name="stock")
    with pytest.raises(NotIntegral, match=r"column stock lies between 0\.0 and inf"):
        integer_model(builder.build())
    builder = ModelBuilder("open")
    builder.column(0, 1e19, integer=True, name="stock")
    with pytest.raises(NotIntegral, match="beyond 2⁶¹"):
        integer_model(builder.build())


def test_start_times_between_integer_delays_are_integers() -> None:
    """t₁ − t₀ ≥ 5·y and t₁ ≤ 9: a network, so that continuous times have an integral optimum."""
    builder = ModelBuilder()
    y = builder.binary()
    t = builder.columns(2, 0, 9)
    builder.row([t[1], t[0], y], [2, -2, -10], lower=4)
    builder.row([t[1], y], [1, 3], upper=9)
    assert implied_integers(builder.build()).all()


@pytest.mark.parametrize(
    ("values", "lower", "upper"),
    [
        ([1.0, 1.0, 0.0], 1.0, 9),  # two continuous columns of the same sign
        ([2.0, -1.0, 0.0], 1.0, 9),  # of different size
        ([1.0, -1.0, 0.5], 1.0, 9),  # an integer column that moves by halves
        ([1.0, -1.0, 1.0], 0.5, 9),  # a limit at a half
        ([1.0, -1.0, 1.0], 1.0, 8.5),  # a column limit at a half
    ],
)
def test_what_is_not_a_network_stays_continuous(values: list[float], lower: float, upper: float) -> None:
    builder = ModelBuilder()
    t = builder.columns(2, 0, upper, name="time")
    y = builder.binary()
    builder.row([*t, y], values, lower=lower)
    model = builder.build()
    assert implied_integers(model).tolist() == [False, False, True]
    with pytest.raises(NotIntegral, match=r"continuous column time\[0\]"):
        integer_model(model)
