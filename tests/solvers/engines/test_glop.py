"""GLOP: the most of small linear programs, and what their rows are worth."""

import random
from collections.abc import Iterator

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from solvers.engines import glop


def _cases() -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    for seed in range(60):
        draw = random.Random(seed)
        columns, rows = draw.randint(1, 5), draw.randint(1, 5)
        table = np.array([[float(draw.randint(0, 4)) for _ in range(columns)] for _ in range(rows)])
        worth = np.array([float(draw.randint(0, 6)) for _ in range(columns)])
        yield worth, table, np.array([float(draw.randint(0, 9)) for _ in range(rows)]), np.full(columns, 7.0)


def test_it_finds_what_another_engine_finds_and_its_prices_prove_it() -> None:
    for worth, table, limits, upper in _cases():
        found = glop.most(worth, csr_array(table), limits, upper)
        other = linprog(-worth, A_ub=table, b_ub=limits, bounds=[(0, 7.0)] * len(worth), method="highs")
        assert found is not None and abs(found.most + other.fun) < 1e-6
        assert (table @ found.amounts <= limits + 1e-6).all() and (found.prices >= -1e-9).all()
        owed = np.maximum(worth - table.T @ found.prices, 0) @ upper
        assert abs(found.prices @ limits + owed - found.most) < 1e-6


def test_nothing_is_found_where_there_is_nothing() -> None:
    assert glop.most(np.ones(1), csr_array(np.array([[1.0]])), np.array([-1.0])) is None
