"""One contract for all solvers: plans pass the checker, bounds are bounds, exact means exact, inputs stay untouched."""

import math
from functools import cache
from typing import Any

import pytest

from solvers.check import check_plan
from solvers.ir import Limits, Solution, Status
from solvers.ir.codec import plan_file, plan_from_raw, plan_to_raw, problem_sha256, problem_to_raw
from solvers.planner import SOLVERS, build_solver, solver_names
from tests.contract import contract_of

SEEDS = range(0, 40)
LIMITS = Limits(time_s=math.inf, work=1.0, seed=3)


def kind_of(name: str) -> str:
    return SOLVERS[name].kind


def solved(name: str, problem: Any) -> Solution[object]:
    return build_solver(name, {}).solve(problem, LIMITS)


@cache
def problem_of(kind: str, seed: int) -> Any:
    return contract_of(kind).tiny(seed)


@cache
def optimum_of(kind: str, seed: int) -> int | None:
    return contract_of(kind).optimum(problem_of(kind, seed))


@cache
def answer(name: str, seed: int) -> Solution[object]:
    """One answer serves all tests: that another solve gives the same one is tested, too."""
    return solved(name, problem_of(kind_of(name), seed))


@pytest.mark.parametrize("name", solver_names())
def test_plans_pass_the_checker_as_files(name: str) -> None:
    plans = 0
    for seed in SEEDS:
        problem, solution = problem_of(kind_of(name), seed), answer(name, seed)
        raw = plan_to_raw(plan_file(solution, kind_of(name), problem_sha256(problem)))
        verdict = check_plan(problem, plan_from_raw(raw))
        if solution.plan is None:
            assert [sentence for sentence in verdict.violations if "no decision" not in sentence] == []
            continue
        assert verdict.violations == (), seed
        assert verdict.objective_us == solution.objective
        plans += 1
    assert plans > len(SEEDS) // 2


@pytest.mark.parametrize("name", solver_names())
def test_bounds_and_statuses_are_true(name: str) -> None:
    contract = contract_of(kind_of(name))
    for seed in SEEDS:
        solution, best = answer(name, seed), optimum_of(kind_of(name), seed)
        if best is None:
            assert solution.status in (Status.INFEASIBLE, Status.UNKNOWN), seed
            continue
        assert solution.status is not Status.INFEASIBLE, seed
        assert solution.bound is None or solution.bound <= best, seed
        assert solution.objective is None or solution.objective >= best, seed
        if solution.status is Status.OPTIMAL:
            assert solution.objective == best, seed
        if name in contract.exact:
            assert solution.objective == best, seed


@pytest.mark.parametrize("name", solver_names())
def test_exact_solvers_are_never_worse_than_this_one(name: str) -> None:
    for exact in contract_of(kind_of(name)).exact:
        for seed in SEEDS:
            solution, best = answer(name, seed), answer(exact, seed)
            if solution.objective is not None:
                assert best.objective is not None
                assert best.objective <= solution.objective, seed


@pytest.mark.parametrize("name", solver_names())
def test_same_seed_and_work_give_the_same_plan(name: str) -> None:
    for seed in list(SEEDS)[:20]:
        first, second = answer(name, seed), solved(name, problem_of(kind_of(name), seed))
        assert (first.plan, first.status, first.bound) == (second.plan, second.status, second.bound), seed


@pytest.mark.parametrize("name", solver_names())
def test_inputs_are_never_written_to(name: str) -> None:
    for seed in list(SEEDS)[:10]:
        problem = contract_of(kind_of(name)).tiny(seed)
        before = problem_to_raw(problem)
        solved(name, problem)
        assert problem_to_raw(problem) == before
