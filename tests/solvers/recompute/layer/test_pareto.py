"""The filter against comparing every pair."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.recompute.layer.pareto import CHUNK, FEW, FIRST_CHUNK, IntArray, TooManyStates, nondominated


def by_pairs(vectors: IntArray) -> list[int]:
    """Of equal vectors the first; otherwise those that no other one is ≤ everywhere."""
    columns = [tuple(column) for column in vectors.T]
    return [
        i
        for i, one in enumerate(columns)
        if not any(
            all(a <= b for a, b in zip(other, one, strict=True)) and (other != one or j < i)
            for j, other in enumerate(columns)
            if j != i
        )
    ]


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 200), st.integers(1, 30))
@settings(max_examples=60, deadline=None)
def test_small_sets(seed: int, rows: int, columns: int, values: int) -> None:
    """Few values make many equal vectors and constant rows."""
    vectors = np.random.default_rng(seed).integers(-values, values, (rows, columns))
    assert nondominated(vectors).tolist() == by_pairs(vectors)


@pytest.mark.parametrize("columns", [FEW, FEW + 1, FIRST_CHUNK + CHUNK + 200])
def test_sets_of_several_chunks(columns: int) -> None:
    """Vectors of equal sum dominate none other, so that every chunk stays full; every seventh is made worse."""
    vectors = np.random.default_rng(columns).integers(0, 1000, (4, columns))
    vectors[3] = 5000 - vectors[:3].sum(axis=0)
    vectors[:, ::7] += 40
    below = (vectors[:, :, None] <= vectors[:, None, :]).all(axis=0)
    strictly = below & ~below.T
    first_of_equals = ~(np.triu(below & below.T, 1)).any(axis=0)
    assert nondominated(vectors).tolist() == np.flatnonzero(~strictly.any(axis=0) & first_of_equals).tolist()


def test_one_call_can_be_stopped_between_its_rounds() -> None:
    """Layers of 50 operators made calls of many seconds, that no time limit ended."""
    vectors = np.random.default_rng(1).integers(0, 1000, (4, FIRST_CHUNK + 3 * CHUNK))
    vectors[3] = 5000 - vectors[:3].sum(axis=0)  # none dominates another: every round stays full
    answers = iter([False, False, True])
    with pytest.raises(TooManyStates):
        nondominated(vectors, lambda: next(answers))
