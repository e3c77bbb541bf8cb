"""What no swap decision ends before, in closed form."""

from solvers.check.swap.floor import floor_us
from solvers.check.swap.judge import base_us
from tests.solvers.swap.brute_force import optimum, random_problem


def test_no_decision_ends_before_it_and_it_is_often_more_than_the_base() -> None:
    met = raised = 0
    for seed in range(60):
        problem, best = random_problem(seed), optimum(random_problem(seed))
        low = floor_us(problem)
        if best is None:
            continue
        assert base_us(problem) <= low <= best, seed
        met, raised = met + (low == best), raised + (low > base_us(problem))
    assert met > 15
    assert raised > 3
