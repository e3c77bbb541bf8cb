"""`greedy-lynx` (§5): its moves by hand, where it gets stuck, and what it never does."""

import pytest

from solvers.ir import InvalidInput, Limits, PartitionProblem, Status
from solvers.partition import Dp, GreedyLynx, even_split, partition_problem
from solvers.partition.balanced import Remainder
from tests.solvers.partition.brute_force import optimum, random_problem


def linear(*slopes: int, layers: int) -> PartitionProblem:
    """Stages whose cost is a slope times their layers."""
    return partition_problem("linear", [[None, *(slope * n for n in range(1, layers + 1))] for slope in slopes])


def test_it_moves_layers_from_the_slowest_to_the_fastest_stage() -> None:
    """(3, 3, 3) costs 9, 6, 3; stage 0 gives one to stage 2: (2, 3, 4) costs 6, 6, 4; then 0 → 2 leaves 6: stop."""
    solution = GreedyLynx().solve(linear(3, 2, 1, layers=9), Limits())
    assert solution.plan is not None
    assert (solution.plan.layers, solution.objective) == ((2, 3, 4), 6)
    assert (solution.status, solution.bound, solution.gap) == (Status.FEASIBLE, None, None)


def test_two_equally_slow_stages_stop_it_short_of_the_optimum() -> None:
    """(2, 2, 2) costs 8, 8, 2: one move leaves a stage at 8. The optimum needs two: (1, 1, 4) costs 4."""
    problem = linear(4, 4, 1, layers=6)
    assert (GreedyLynx().solve(problem, Limits()).objective, optimum(problem)) == (8, 4)


def test_one_move_may_leave_what_does_not_fit_but_two_may_not() -> None:
    one = partition_problem("one", [[None, 1, None, None, None], [None, 1, 2, 3, None]])
    assert GreedyLynx().solve(one, Limits()).objective == 3
    two = partition_problem("two", [[None, 1, None, None, None, None, None], [None, 1, 2, 3, 4, 5, None]])
    stuck = GreedyLynx().solve(two, Limits())
    assert (stuck.status, stuck.plan) == (Status.UNKNOWN, None)
    assert stuck.reason == "stuck at 3, 3 layers, where stage 0 does not fit; a partition that fits exists: use dp"
    assert Dp().solve(two, Limits()).objective == 5


def test_impossible_is_proven_not_guessed() -> None:
    solution = GreedyLynx().solve(partition_problem("no room", [[None, 1, None], [None, None, 1]]), Limits())
    assert (solution.status, solution.reason) == (
        Status.INFEASIBLE,
        "none of 1…1 layers fits stage 1: cost_us[1] is null there; recompute more, or give it more memory",
    )


@pytest.mark.parametrize("initial", ["front", "middle", "back"])
def test_it_never_beats_the_optimum_nor_loses_to_its_start(initial: Remainder) -> None:
    met = 0
    for seed in range(200):
        problem = random_problem(seed)
        solution, best = GreedyLynx(initial=initial).solve(problem, Limits()), optimum(problem)
        assert (solution.status is Status.INFEASIBLE) == (best is None)
        if solution.objective is None:
            continue
        start = even_split(problem.layers, problem.stages, initial)
        costs = [problem.cost_us[stage][count] for stage, count in enumerate(start)]
        assert best is not None
        assert best <= solution.objective
        assert None in costs or solution.objective <= max(cost for cost in costs if cost is not None)
        met += solution.objective == best
    assert met > 100


def test_the_watch_and_the_time_limit_end_it_with_what_it_has() -> None:
    seen: list[float | None] = []

    def watch(incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        seen.append(incumbent)
        return True

    problem = linear(9, 1, layers=12)
    solution = GreedyLynx().solve(problem, Limits(), watch)
    assert (seen, solution.objective, solution.reason) == ([45.0], 45, "its watch ended the search")
    assert GreedyLynx().solve(problem, Limits(time_s=0)).objective == 45
    assert GreedyLynx().solve(problem, Limits()).objective == 11


def test_an_unknown_start_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no choice for initial 'bak': did you mean 'back'"):
        GreedyLynx(initial="bak")  # type: ignore[arg-type]
