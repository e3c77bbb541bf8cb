"""The judge's own optimum of a tiny swap problem is the best of all decisions."""

import math

from solvers.check.swap.small import best_us
from tests.solvers.swap.brute_force import optimum, random_problem


def test_it_is_the_best_of_all_decisions() -> None:
    decided = 0
    for seed in range(40):
        (low, high), best = best_us(random_problem(seed), None), optimum(random_problem(seed))
        expected = math.inf if best is None else best
        assert low <= expected, seed
        if high < math.inf:
            assert low == high == expected, seed
            decided += 1
    assert decided > 10
