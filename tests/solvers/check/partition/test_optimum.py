"""The judge's own optimum of a partition is the best of all decisions."""

import math

import pytest

from solvers.check.partition import optimum
from solvers.check.partition.optimum import best_us
from tests.solvers.partition import brute_force


def test_it_is_the_best_of_all_decisions() -> None:
    impossible = 0
    for seed in range(200):
        problem = brute_force.random_problem(seed)
        best = brute_force.optimum(problem)
        expected = math.inf if best is None else best
        assert best_us(problem, None) == (expected, expected), seed
        impossible += best is None
    assert 0 < impossible < 100


def test_too_much_to_try_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimum, "MOST_WORK", 0)
    assert best_us(brute_force.random_problem(1), None) == (0.0, math.inf)
