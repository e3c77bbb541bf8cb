"""What no replan decision takes less than, in closed form."""

import math

from solvers.check.replan.floor import best_us
from tests.solvers.replan.brute_force import optimum, random_problem


def test_no_decision_takes_less() -> None:
    met = 0
    for seed in range(60):
        problem, best = random_problem(seed), optimum(random_problem(seed))
        low, high = best_us(problem, None)
        assert high == math.inf
        assert best is None or low <= best, seed
        met += low == best
    assert met > 3
