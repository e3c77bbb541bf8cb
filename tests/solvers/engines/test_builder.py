"""Columns and rows, one by one or in bulk, give the same model; nonsense is refused in a sentence."""

import dataclasses

import numpy as np
import pytest

from solvers.engines import LinearModel, ModelBuilder
from solvers.ir.errors import InvalidProblem


def dense(model: LinearModel) -> np.ndarray:
    matrix = np.zeros((model.rows, model.columns))
    matrix[model.entry_rows, model.row_index] = model.row_value
    return matrix


def test_bulk_and_single_calls_build_the_same_model() -> None:
    single, bulk = ModelBuilder(), ModelBuilder()
    for cost in (3, 4, 5):
        single.column(0, 2, integer=True, cost=cost)
    single.row([0, 1], [1, 2], upper=3)
    single.row([2, 0], [7, -1], lower=1, upper=9)
    bulk.columns(3, 0, 2, integer=True, cost=[3, 4, 5])
    bulk.rows([0, 0, 1, 1], [0, 1, 2, 0], [1, 2, 7, -1], lower=[-np.inf, 1], upper=[3, 9])
    one, other = single.build(), bulk.build()
    np.testing.assert_array_equal(dense(one), [[1, 2, 0], [-1, 0, 7]])
    for field in ("cost", "lower", "upper", "integer", "row_start", "row_index", "row_value", "row_lower", "row_upper"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field))


def test_a_column_named_twice_counts_twice_and_zeros_vanish() -> None:
    builder = ModelBuilder()
    x = builder.columns(3)
    builder.row([x[0], x[1], x[0], x[2], x[2]], [1, 5, 2, 4, -4], upper=1)
    model = builder.build()
    assert model.row_index.tolist() == [0, 1]
    assert model.row_value.tolist() == [3, 5]


def test_costs_and_constants_add_up() -> None:
    builder = ModelBuilder()
    x = builder.columns(2, cost=1)
    builder.add_cost([x[0], x[0], x[1]], [2, 3, 4])
    builder.add_offset(10)
    builder.add_offset(-3)
    model = builder.build()
    assert model.cost.tolist() == [6, 5]
    assert model.objective(np.array([1.0, 1.0])) == 18


def test_names_number_the_members_of_a_block() -> None:
    builder = ModelBuilder()
    builder.binary(name="alone")
    builder.columns(2, name="pair")
    builder.rows([0, 1], [0, 1], count=3, name="limit")
    model = builder.build()
    assert [model.column_names[j] for j in range(3)] == ["alone", "pair[0]", "pair[1]"]
    assert model.row_names[2] == "limit[2]"
    with pytest.raises(IndexError):
        model.column_names[3]


def test_a_built_model_cannot_change_and_the_builder_can_go_on() -> None:
    builder = ModelBuilder()
    builder.column(cost=1)
    model = builder.build()
    with pytest.raises(ValueError, match="read-only"):
        model.cost[0] = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.offset = 2  # type: ignore[misc]
    builder.column(cost=7)
    builder.add_cost([0], [1])
    assert model.cost.tolist() == [1]
    assert builder.build().cost.tolist() == [2, 7]


def test_an_empty_model_is_a_model() -> None:
    model = ModelBuilder().build()
    assert (model.columns, model.rows) == (0, 0)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda b: b.column(lower=np.nan), "lower limit nan"),
        (lambda b: b.column(upper=-np.inf), "upper limit -inf"),
        (lambda b: b.column(cost=np.inf, name="price"), "cost inf of price"),
        (lambda b: b.columns(3, cost=[1, 2]), "2 numbers for 3 places"),
        (lambda b: b.row([0], [np.nan]), "coefficient nan"),
        (lambda b: b.row([1], [1]), "column 1 of row"),
        (lambda b: b.row([-1], [1]), "column -1 of row"),
        (lambda b: b.row([0], [1], lower=np.inf), "lower limit inf"),
        (lambda b: b.rows([2], [0], count=2), "row number 2"),
        (lambda b: b.add_offset(np.nan), "constant is nan"),
        (lambda b: b.add_cost([4], [1]), "column 4"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(build: object, words: str) -> None:
    builder = ModelBuilder()
    builder.column()
    with pytest.raises(InvalidProblem, match=words) as caught:
        build(builder)  # type: ignore[operator]
    assert "\n" not in str(caught.value)


def test_a_hundred_thousand_entries_build_in_a_moment() -> None:
    random = np.random.default_rng(0)
    builder = ModelBuilder()
    x = builder.columns(10_000, 0, 1, integer=True, cost=random.random(10_000))
    builder.rows(np.repeat(np.arange(5_000), 20), random.choice(x, 100_000), 1.0, upper=np.full(5_000, 3.0))
    model = builder.build()
    assert model.rows == 5_000
    assert int(dense_count(model)) == 100_000


def dense_count(model: LinearModel) -> float:
    """Duplicates are added, never lost: the coefficients still sum to the number of entries."""
    return float(model.row_value.sum())
