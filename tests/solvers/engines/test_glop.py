"""GLOP: the most of small linear programs, and what their rows are worth."""

import random

import numpy as np
from scipy.sparse import csr_array

from solvers.engines import glop


def test_what_it_finds_keeps_to_the_rows_and_its_prices_prove_it() -> None:
    for seed in range(60):
        draw = random.Random(seed)
        columns, rows = draw.randint(1, 5), draw.randint(1, 5)
        table = np.array([[float(draw.randint(0, 4)) for _ in range(columns)] for _ in range(rows)])
        worth, limits = (np.array([float(draw.randint(0, 9)) for _ in range(size)]) for size in table.shape[::-1])
        found = glop.most(worth, csr_array(table), limits, np.full(columns, 7.0))
        assert found is not None and (found.amounts >= 0).all() and (found.prices >= 0).all()
        assert (table @ found.amounts <= limits + 1e-6).all() and (found.amounts <= 7 + 1e-6).all()
        owed = found.prices @ limits + 7 * np.maximum(worth - table.T @ found.prices, 0).sum()
        assert abs(owed - found.most) < 1e-6 and abs(worth @ found.amounts - found.most) < 1e-6


def test_nothing_is_found_where_there_is_nothing() -> None:
    assert glop.most(np.ones(1), csr_array(np.array([[1.0]])), np.array([-1.0])) is None
