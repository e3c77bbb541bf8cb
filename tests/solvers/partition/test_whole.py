"""The least budget of a whole step is exact: nothing less has a plan, and with it there is one."""

import math

from msgspec.structs import replace

from solvers.ir import Limits, PipelineProblem
from solvers.partition.baselines import Lynx
from solvers.partition.whole import least_budget
from tests.solvers.partition.steps import random_step
from tests.solvers.pipeline.brute_force import least_budget as tried
from tests.solvers.pipeline.brute_force import random_problem


def raised(problem: PipelineProblem, budget: int) -> PipelineProblem:
    """Every lesser budget raised to this."""
    stages = tuple(replace(own, budget_bytes=max(own.budget_bytes, budget)) for own in problem.stages)
    return replace(problem, stages=stages)


def test_it_is_brute_forces() -> None:
    found = [(least_budget(problem), tried(problem)) for problem in map(random_problem, range(60))]
    assert all(least.exact for least, _ in found)
    assert [least.budget_bytes for least, _ in found] == [least for _, least in found]
    assert sum(least > 0 for _, least in found) > 5


def test_it_is_enough_and_nothing_less_is() -> None:
    """Raised to it the problem has a plan (a partition that dp finds), a byte below none."""
    seen = 0
    for seed in range(120):
        problem = random_step(seed)
        least = least_budget(problem)
        if not least.budget_bytes:
            continue
        seen += 1
        assert least_budget(raised(problem, least.budget_bytes)).budget_bytes == 0
        assert least_budget(raised(problem, least.budget_bytes - 1)).budget_bytes == least.budget_bytes
        answer = Lynx(cut="dp").solve(raised(problem, least.budget_bytes), Limits(time_s=math.inf))
        assert answer.plan is not None, seed
    assert seen > 20
