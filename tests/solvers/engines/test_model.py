"""The exact judge of solutions: nothing slips through by rounding, nothing true is refused."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers.engines import LinearModel, ModelBuilder
from tests.solvers.engines.models import Program, integer_program, programs


def one_row(values: list[float], lower: float, upper: float, integer: bool = True) -> LinearModel:
    builder = ModelBuilder()
    builder.columns(len(values), -1e15, 1e15, integer=integer, name="x")
    builder.row(range(len(values)), values, lower, upper, name="budget")
    return builder.build()


def test_a_byte_too_many_is_a_violation_where_everything_is_integral() -> None:
    """40 GB + 1 byte against 40 GB is within any float tolerance, and still too much."""
    model = one_row([1.0, 1.0], -np.inf, 40e9)
    assert model.violations(np.array([20e9, 20e9])) == ()
    (violation,) = model.violations(np.array([20e9, 20e9 + 1]))
    assert (violation.kind, violation.where, violation.excess) == ("row", "budget", 1.0)
    assert "budget" in str(violation)


def test_a_continuous_row_is_allowed_the_engines_tolerance() -> None:
    model = one_row([1.0, 1.0], -np.inf, 40e9, integer=False)
    assert model.violations(np.array([20e9, 20e9 + 1])) == ()
    assert len(model.violations(np.array([20e9, 20e9 + 1e5]))) == 1


def test_sums_that_floating_point_loses_are_decided_exactly() -> None:
    """1e16 + 1 − 1e16 is 0 in floating point and 1 in truth."""
    builder = ModelBuilder()
    builder.columns(3, -1e17, 1e17, integer=True)
    builder.row([0, 1, 2], [1, 1, -1], 1, 1)
    model = builder.build()
    assert model.violations(np.array([1e16, 1.0, 1e16])) == ()
    assert len(model.violations(np.array([1e16, 0.0, 1e16]))) == 1


def test_fractions_of_integers_and_limits_of_columns_are_seen() -> None:
    builder = ModelBuilder()
    builder.column(0, 3, integer=True, name="count")
    builder.column(0, 1, name="share")
    model = builder.build()
    assert [v.where for v in model.violations(np.array([2.5, 0.5]))] == ["count"]
    assert [v.where for v in model.violations(np.array([4.0, 1.1]))] == ["count", "share"]
    assert [v.where for v in model.violations(np.array([1.0, np.nan]))] == ["share"]
    assert model.violations(np.array([1.0, 1 + 1e-7])) == ()


@given(programs(), st.lists(st.integers(-6, 10), min_size=4, max_size=4))
def test_violations_are_empty_exactly_for_feasible_points(program: Program, point: list[int]) -> None:
    cost, ranges, rows, offset = program
    model = integer_program(*program)
    x = point[: len(cost)]
    sums = [sum(a * v for a, v in zip(values, x, strict=True)) for values, _, _ in rows]
    broken = sum(not low <= v <= high for v, (low, high) in zip(x, ranges, strict=True))
    for total, (_, low, high) in zip(sums, rows, strict=True):
        broken += (low is not None and total < low) + (high is not None and total > high)
    assert len(model.violations(np.array(x, dtype=float))) == broken
    assert model.objective(np.array(x, dtype=float)) == offset + sum(c * v for c, v in zip(cost, x, strict=True))


@given(st.lists(st.tuples(*[st.floats(-1e6, 1e6)] * 2), min_size=1, max_size=6), st.floats(-1e6, 1e6))
def test_objectives_are_rounded_once(terms: list[tuple[float, float]], offset: float) -> None:
    builder = ModelBuilder()
    builder.columns(len(terms), -np.inf, cost=[cost for cost, _ in terms])
    builder.add_offset(offset)
    exact = Fraction(offset) + sum(Fraction(cost) * Fraction(x) for cost, x in terms)
    value = builder.build().objective(np.array([x for _, x in terms]))
    assert value == pytest.approx(float(exact), rel=1e-15, abs=1e-300)


def test_any_duals_give_a_valid_bound() -> None:
    """min x + y, x + 2y ≥ 4, 0 ≤ x, y ≤ 10: the optimum is 2; the dual ½ proves it, ¼ proves 1, 1 proves −6."""
    builder = ModelBuilder()
    builder.columns(2, 0, 10, cost=1)
    builder.row([0, 1], [1, 2], lower=4)
    model = builder.build()
    assert model.dual_bound(np.array([0.5])) == 2
    assert model.dual_bound(np.array([0.25])) == 1
    assert model.dual_bound(np.array([1.0])) == 4 - 10  # y's reduced cost is −1, at its limit 10
    assert model.dual_bound(np.array([-1.0])) == -np.inf  # the row has no upper limit
    assert model.reduced_costs(np.array([0.5])).tolist() == [0.5, 0.0]


def test_a_dual_that_counts_as_zero_counts_so_everywhere() -> None:
    """min 0·x, x ≥ 0 (as a row), 0 ≤ x ≤ 10¹²: the optimum is 0; noise in the dual must not shift it by 10³."""
    builder = ModelBuilder()
    builder.columns(1, 0, 1e12)
    builder.row([0], [1], lower=0)
    assert builder.build().dual_bound(np.array([-1e-9])) == 0


@given(programs(), st.lists(st.integers(-3, 3), min_size=3, max_size=3))
def test_no_dual_bound_exceeds_a_feasible_objective(program: Program, duals: list[int]) -> None:
    _, ranges, rows, _ = program
    model = integer_program(*program)
    bound = model.dual_bound(np.array(duals[: len(rows)], dtype=float))
    for corner in (np.array([low for low, _ in ranges], float), np.array([high for _, high in ranges], float)):
        if not model.violations(corner):
            assert bound <= model.objective(corner)


def test_contradictions_are_named() -> None:
    assert one_row([1.0], 3, 2).contradiction() == "row budget has no value between 3.0 and 2.0"
    assert one_row([0.0], 1, 2).contradiction() == "row budget has no value between 1.0 and 2.0"
    assert one_row([1.0], 1, 2).contradiction() is None
    builder = ModelBuilder()
    builder.column(0.2, 0.8, integer=True, name="half")
    assert builder.build().contradiction() == "column half has no value between 0.2 and 0.8"


def test_objectives_are_integral_only_when_every_part_is() -> None:
    def model(cost: float, offset: float, integer: bool) -> LinearModel:
        builder = ModelBuilder()
        builder.column(0, 1, integer=integer, cost=cost)
        builder.column(0, 1)  # costs nothing, so it may be anything
        builder.add_offset(offset)
        return builder.build()

    assert model(3, 4, True).objective_is_integral
    assert not model(3.5, 4, True).objective_is_integral
    assert not model(3, 0.5, True).objective_is_integral
    assert not model(3, 4, False).objective_is_integral
