"""The systems as solvers of whole steps: the paper's order, parameters, and what does not fit."""

import math

import pytest
from msgspec.structs import replace

from solvers.ir import InvalidInput, Limits, PipelineProblem, Status
from solvers.partition.baselines import AdaPipeStep, FullStep, Lynx, SelectiveStep
from tests.solvers.partition.steps import busy_problem

LIMITS = Limits(time_s=math.inf)


@pytest.fixture(scope="module")
def problem() -> PipelineProblem:
    return busy_problem()


def test_full_recomputation_is_slower_than_lynx(problem: PipelineProblem) -> None:
    full, adapipe, lynx = (one.solve(problem, LIMITS).objective for one in (FullStep(), AdaPipeStep(), Lynx()))
    assert full is not None and adapipe is not None and lynx is not None
    assert full > adapipe > lynx


def test_parameters_change_cut_and_stalls(problem: PipelineProblem) -> None:
    found = {hide: FullStep(hide=hide).solve(problem, LIMITS).objective or 0 for hide in ("none", "cooldown", "all")}
    assert found["none"] >= found["cooldown"]
    assert (FullStep(cut="fastest").solve(problem, LIMITS).objective or 0) <= found["none"]
    with pytest.raises(InvalidInput, match="greedy-lynx"):
        Lynx(cut="greedy")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="cooldown"):
        Lynx(hide="cool-down")  # type: ignore[arg-type]


def test_a_policy_that_does_not_fit_is_unknown_and_says_where(problem: PipelineProblem) -> None:
    answer = SelectiveStep().solve(problem, LIMITS)
    assert answer.status is Status.UNKNOWN
    assert (answer.reason or "").startswith("stage 0 with 3 layers: ")


def test_where_nothing_fits_every_system_proves_it(problem: PipelineProblem) -> None:
    tiny = replace(problem, stages=tuple(replace(own, budget_bytes=40) for own in problem.stages))
    for solver in (FullStep(), SelectiveStep(), Lynx()):
        answer = solver.solve(tiny, LIMITS)
        assert answer.status is Status.INFEASIBLE
        assert f"exactly {answer.least_budget_bytes} bytes" in (answer.reason or "")


def test_a_watch_may_say_stop_at_once(problem: PipelineProblem) -> None:
    answer = Lynx().solve(problem, LIMITS, lambda incumbent, bound, elapsed_s: True)
    assert answer.status is Status.UNKNOWN and "watch" in (answer.reason or "")
