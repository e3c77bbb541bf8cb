"""`dp`: equal to trying everything, its ties, its limits, its proofs that nothing fits."""

import re

import numpy as np
import pytest
from hypothesis import given, settings

from solvers.check import check_plan
from solvers.check.partition.judge import is_feasible
from solvers.ir import InvalidInput, Limits, PartitionProblem, Status
from solvers.ir.codec import plan_file
from solvers.partition import UNFIT, Dp, best_split, partition_problem, problem_of_array
from solvers.partition.answers import why_infeasible
from solvers.partition.table import cost_array
from tests.solvers.partition.brute_force import all_partitions, optimum, random_problem
from tests.strategies import partition_problems

STORY = partition_problem("story", [[None, 10, 20, 33, None], [None, 12, 24, None, None]])
"""Four layers: 2 + 2 costs max(20, 24) = 24, 3 + 1 costs 33, 1 + 3 does not fit."""


def test_the_story() -> None:
    solution = Dp().solve(STORY, Limits())
    assert (solution.status, solution.objective, solution.bound, solution.base) == (Status.OPTIMAL, 24, 24, None)
    assert solution.plan is not None
    assert solution.plan.layers == (2, 2)


def test_it_is_the_best_of_all_partitions() -> None:
    for seed in range(400):
        problem = random_problem(seed)
        solution, best = Dp().solve(problem, Limits()), optimum(problem)
        assert solution.objective == best, seed
        assert (solution.status is Status.OPTIMAL) == (best is not None)


@given(partition_problems(max_stages=4, max_layers=7))
@settings(max_examples=400)
def test_nulls_and_costs_in_any_order(problem: PartitionProblem) -> None:
    """Fuzzed tables: the judge calls the plan clean, the optimum is that of trying everything, reasons are proofs."""
    solution = Dp().solve(problem, Limits())
    verdict = check_plan(problem, plan_file(solution, "partition", None))
    if is_feasible(problem):
        assert verdict.clean
        assert solution.objective == optimum(problem)
        assert why_infeasible(cost_array(problem)) is None
    else:
        assert solution.status is Status.INFEASIBLE
        assert solution.reason == why_infeasible(cost_array(problem))
        assert [sentence for sentence in verdict.violations if "no decision" not in sentence] == []


def test_ties_go_to_the_most_even_or_to_the_smallest_total() -> None:
    """Then to the one with more layers on earlier stages: of equals, the lexicographically last."""
    different = 0
    for seed in range(300):
        problem = random_problem(seed)
        best = optimum(problem)
        if best is None:
            continue
        optimal = [layers for layers, cost in all_partitions(problem) if cost == best]

        def total(layers: tuple[int, ...], problem: PartitionProblem = problem) -> int:
            return sum(problem.cost_us[stage][count] or 0 for stage, count in enumerate(layers))

        def squares(layers: tuple[int, ...]) -> int:
            return sum(count**2 for count in layers)

        costs = cost_array(problem)
        most_even, least = min(map(squares, optimal)), min(map(total, optimal))
        assert best_split(costs) == max(layers for layers in optimal if squares(layers) == most_even), seed
        assert best_split(costs, "total") == max(layers for layers in optimal if total(layers) == least), seed
        different += best_split(costs) != best_split(costs, "total")
    assert different > 10


def test_sums_beyond_int64_are_exact() -> None:
    """300 stages of 2⁵³ − n each: the sums of costs pass 2⁶⁰, and one microsecond still decides."""
    stages, layers = 300, 301
    costs = np.full((stages, layers + 1), UNFIT)
    costs[:, 1], costs[:, 2] = 2**53 - 5, 2**53 - 1
    costs[17, 2] = 2**53 - 2
    costs[18, 1] = 2**53 - 1
    chosen = {ties: best_split(costs, ties) or () for ties in ("even", "total")}
    assert {ties: layers.index(2) for ties, layers in chosen.items()} == {"even": 0, "total": 18}


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    source = np.random.default_rng(3)
    costs = source.integers(1, 100, size=(5, 21))
    whole = best_split(costs)
    monkeypatch.setattr("solvers.partition.dp.BLOCK", 20)
    assert best_split(costs) == whole


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[None, 1, 1]] * 3, "2 layers cannot fill 3 stages with one each: take at most 2 stages"),
        ([[None, 1, 1, 1], [None] * 4], "none of 1…2 layers fits stage 1: cost_us[1] is null there"),
        ([[5, 1, 1, 1], [5, None, None, 7]], "none of 1…2 layers fits stage 1"),
        ([[None, 1, 1, None, None, None]] * 2, "the stages fit at most 4 layers together, of 5"),
        ([[None, None, 1, 1]] * 2, "the stages take at least 4 layers together, but there are 3"),
        ([[None, None, 1, None, 1, None]] * 2, "no choice of the layer counts that fit adds up to 5 layers"),
    ],
)
def test_what_does_not_fit_is_told_in_a_sentence(rows: list[list[int | None]], words: str) -> None:
    solution = Dp().solve(partition_problem("does not fit", rows), Limits())
    assert (solution.status, solution.least_budget_bytes) == (Status.INFEASIBLE, None)
    assert solution.reason is not None
    assert re.match(re.escape(words), solution.reason)


def test_a_tiny_time_limit_still_answers_with_a_bound() -> None:
    source = np.random.default_rng(5)
    problem = problem_of_array("large", np.cumsum(source.integers(1, 50, size=(60, 400)), axis=1))
    solution = Dp().solve(problem, Limits(time_s=1e-6))
    assert solution.status is Status.FEASIBLE
    assert solution.bound is not None
    best = Dp().solve(problem, Limits())
    assert best.objective is not None
    assert solution.bound <= best.objective < (solution.objective or 0)
    assert "the time limit of 1e-06 s ended the recursion" in (solution.reason or "")


def test_the_watch_may_stop_it() -> None:
    seen: list[float | None] = []

    def watch(incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        seen.append(bound)
        return True

    stopped = Dp().solve(STORY, Limits(), watch)
    assert (seen, stopped.status, stopped.objective, stopped.bound) == ([12.0], Status.FEASIBLE, 24, 12)
    narrow = partition_problem("not even", [[None, 1, None, 3], [None, 1, 9, None]])
    assert Dp().solve(narrow, Limits(), watch).objective == 9
    tall = partition_problem("even does not fit", [[None, 1, None, 3, 4], [None, 1, None, 3, 4]])
    assert Dp().solve(tall, Limits(), watch).status is Status.UNKNOWN
    assert Dp().solve(tall, Limits()).objective == 3


def test_bad_input_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no choice for ties 'totl': did you mean 'total'"):
        Dp(ties="totl")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"the rows of costs have \[2, 3\] entries"):
        partition_problem("ragged", [[None, 1], [None, 1, 2]])
    with pytest.raises(InvalidInput, match="the rows of costs have"):
        partition_problem("empty", [])
