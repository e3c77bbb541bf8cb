"""The judge's own optimum of a tiny graph is that of the brute force, and of the exact linear model."""

import math

import pytest

from solvers.check.recompute_graph import small
from solvers.check.recompute_graph.small import best_us
from solvers.ir import Limits, Status
from solvers.recompute.graph import OptMilp
from tests.solvers.recompute.graph.brute_force import optimum, random_problem


def test_it_is_the_best_of_all_plans() -> None:
    known = impossible = 0
    for seed in range(50):
        problem, found = random_problem(seed), best_us(random_problem(seed), None)
        if found == (0.0, math.inf):
            continue
        best = optimum(problem)
        assert found[0] == found[1] == (math.inf if best is None else best), seed
        known, impossible = known + 1, impossible + (best is None)
    assert known > 40
    assert impossible > 3


def test_it_agrees_with_the_linear_model() -> None:
    for seed in range(300, 308):
        problem = random_problem(seed)
        answer = OptMilp().solve(problem, Limits(time_s=math.inf, work=8.0))
        assert answer.status in (Status.OPTIMAL, Status.INFEASIBLE), seed
        expected = math.inf if answer.status is Status.INFEASIBLE else answer.objective
        assert best_us(problem, None) in {(expected, expected), (0.0, math.inf)}, seed


def test_too_many_walks_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    feasible = next(seed for seed in range(99) if math.isfinite(best_us(random_problem(seed), None)[1]))
    monkeypatch.setattr(small, "MOST_STEPS", 1)
    assert best_us(random_problem(feasible), None) == (0.0, math.inf)
