"""A model without its fixed columns has the same solutions, at the same objective."""

from dataclasses import replace

import numpy as np

from solvers.engines import LinearModel, ModelBuilder, solve
from solvers.engines.reduced import without_fixed


def random_model(seed: int) -> LinearModel:
    """Ten binaries and two continuous columns in eight rows, one of which holds a single column."""
    source = np.random.default_rng(seed)
    builder = ModelBuilder("some")
    builder.binaries(10, cost=source.integers(-9, 9, 10))
    builder.columns(2, 0, 6, cost=source.integers(-3, 3, 2))
    for _ in range(7):
        columns = source.choice(12, 5, replace=False)
        builder.row(columns, source.integers(-4, 5, 5), lower=-6, upper=float(source.integers(2, 7)))
    builder.row([3], [1.0], upper=1.0)
    return builder.build()


def test_what_is_left_has_the_same_optimum_and_its_points_are_points_of_the_whole() -> None:
    solved = 0
    for seed in range(12):
        model, source = random_model(seed), np.random.default_rng(seed + 100)
        fixed = [3, *source.choice(10, 4, replace=False).tolist()]
        lower, upper = model.lower.copy(), model.upper.copy()
        lower[fixed] = upper[fixed] = source.integers(0, 2, len(fixed))
        whole = replace(model, lower=lower, upper=upper)
        some, is_open = without_fixed(whole)
        assert some.columns == is_open.sum() == 12 - len(set(fixed))
        assert some.rows < model.rows  # the row of the fixed column alone is gone
        expected, found = solve(whole), solve(some)
        assert (found.status, found.objective) == (expected.status, expected.objective)
        if found.x is not None:
            x = whole.lower.copy()
            x[is_open] = found.x
            assert not whole.violations(x)
            assert whole.objective(x) == found.objective
            solved += 1
    assert solved >= 6


def test_nothing_fixed_changes_nothing() -> None:
    model = random_model(0)
    some, is_open = without_fixed(model)
    assert is_open.all()
    assert np.array_equal(some.row_value, model.row_value)
    assert np.array_equal(some.row_upper, model.row_upper)
    assert some.offset == model.offset
