"""All plans of a small problem, one after the other, until there are too many or time is up."""

import msgspec
import pytest

from solvers.ir import ReplanProblem
from solvers.replan.exact.bounds import StageLimits
from solvers.replan.exact.every_plan import EveryPlan, TooManyError
from solvers.replan.progress import never
from tests.solvers.replan.brute_force import timed_pipelines
from tests.solvers.replan.clusters import grid
from tests.solvers.replan.exact.problems import random_problem

MANY = 100_000


def whenever(_depths: tuple[int, ...]) -> int:
    """Pipelines of any depths have the same limit."""
    return 10**18


def _worth(problem: ReplanProblem) -> dict[int, int]:
    """Nothing is excluded."""
    deepest = min(problem.max_depth, problem.nodes, problem.layers)
    return dict.fromkeys(range(1, deepest + 1), problem.microbatches)


@pytest.mark.parametrize("seed", range(40))
def test_each_plan_within_the_limit_is_seen_once(seed: int) -> None:
    problem = msgspec.structs.replace(random_problem(seed, nodes=4, layers=4), microbatches=1 + seed % 5)
    every = sorted((time_us, tuple(sorted(chosen))) for time_us, chosen in timed_pipelines(problem))
    limit = every[len(every) // 2][0] if every else 0
    limits = StageLimits(problem, problem.layers)
    plans = EveryPlan(limits, problem.nodes, _worth(problem), limit, MANY, never, whenever).plans()
    found = sorted((time_us, tuple(sorted(chosen))) for time_us, chosen in plans)
    assert found == [plan for plan in every if plan[0] <= limit]


@pytest.mark.parametrize("seed", range(20))
def test_each_set_of_depths_can_have_a_limit_of_its_own(seed: int) -> None:
    problem = msgspec.structs.replace(random_problem(seed, nodes=4, layers=4), microbatches=1 + seed % 5)
    every = sorted((time_us, tuple(sorted(chosen))) for time_us, chosen in timed_pipelines(problem))
    latest = every[-1][0] if every else 0

    def sooner(depths: tuple[int, ...]) -> int:
        return latest * (1 + len(depths) % 2) * (1 + sum(depths) % 2) // 3

    plans = EveryPlan(
        StageLimits(problem, problem.layers), problem.nodes, _worth(problem), latest, MANY, never, sooner
    ).plans()
    found = sorted((time_us, tuple(sorted(chosen))) for time_us, chosen in plans)
    assert found == [plan for plan in every if plan[0] <= sooner(tuple(len(layers) for layers, _ in plan[1]))]


def test_too_many_ways_to_share_microbatches_are_noticed_at_once() -> None:
    """Two or three of each depth could have a plan, if any of the 100,000 microbatches fitted."""
    problem = grid(4, 4, 80, 100_000, failed=(7,), memory_bytes=10**7, max_depth=16, p2p_us=300)
    limits, worth = StageLimits(problem, problem.layers), {depth: 7000 * depth for depth in range(1, 16)}
    with pytest.raises(TooManyError):
        list(EveryPlan(limits, problem.nodes, worth, 0, 100, never, whenever).plans())


def test_who_has_to_stop_does_so_before_the_first_plan() -> None:
    problem = grid(2, 2, 4, 8)
    limits = StageLimits(problem, problem.layers)
    with pytest.raises(TooManyError):
        next(EveryPlan(limits, problem.nodes, _worth(problem), 10**12, MANY, lambda: True, whenever).plans())
