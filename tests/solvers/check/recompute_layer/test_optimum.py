"""The judge proves true claims about layers, and finds what makes false ones false, without the solvers' help."""

import math

import pytest
from msgspec.structs import replace

from solvers.check.recompute_layer import front, optimum
from solvers.check.recompute_layer.optimum import best_us
from solvers.ir import Limits
from solvers.recompute.layer import Heu
from tests.solvers.recompute.layer import brute_force
from tests.solvers.recompute.layer.real import SHAPES, costs, stage


def test_true_claims_are_proved_and_false_ones_contradicted() -> None:
    impossible = 0
    for seed in range(120):
        problem = replace(brute_force.random_problem(seed), last_windowless=seed % 3 == 0)
        best = brute_force.optimum(problem)
        if best is None:
            assert best_us(problem, None) == (math.inf, math.inf), seed
            impossible += 1
            continue
        assert best_us(problem, best + 1) == (0.0, best), seed
        assert best_us(problem, best)[0] == best, seed
        assert best_us(problem, best - 1)[0] == max(0, best - 1), seed
    assert impossible > 5


@pytest.mark.parametrize("shape", SHAPES[:4], ids=lambda shape: shape[0])
def test_bounds_of_real_layers_are_proved(shape: tuple[str, int, int, str]) -> None:
    problem = stage(costs(*shape), layers=8, inflight=3, position=0.1)
    solution = Heu(groups=2).solve(problem, Limits(work=1.0))
    assert solution.bound is not None
    assert solution.bound > 0
    low, high = best_us(problem, solution.bound)
    assert low == solution.bound
    assert solution.objective is not None
    assert high >= solution.objective


def test_what_is_too_much_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = stage(costs(*SHAPES[0]), layers=8, inflight=3, position=0.1)
    monkeypatch.setattr(optimum, "MOST_PRICES", 0)
    low, high = best_us(problem, 10.0)
    assert low == 0.0
    assert math.isfinite(high)
    monkeypatch.setattr(front, "MOST_PARTIAL", 1)
    assert best_us(problem, 10.0) == (0.0, math.inf)
