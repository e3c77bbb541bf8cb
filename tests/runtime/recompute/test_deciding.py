"""The room that solvers are given: as much as the reckoned peak allows, against every plan that there is."""

import time
from collections.abc import Callable
from itertools import combinations

import msgspec
import pytest

from runtime.recompute.deciding import decide
from runtime.recompute.layer import Layer, Unit
from solvers.ir.errors import InfeasibleBudget
from solvers.ir.recompute import RecomputeLayerPlan, RecomputeLayerProblem
from solvers.ir.solution import Limits, Solution
from solvers.planner import build_solver, solve

SIZES, TIMES, BLOCKS = (40, 10, 30, 25), (9.0, 4.0, 2.0, 6.0), 4
LAYER = Layer(
    tuple(
        Unit(f"op {index}", (index,), True, (), time, size, False, None)
        for index, (size, time) in enumerate(zip(SIZES, TIMES, strict=True))
    ),
    (), (), 5, tuple(f"op {index}" for index in range(4)),
)  # fmt: skip


def peak_of(plan: RecomputeLayerPlan | None) -> int:
    """The first block's backward pass takes most, so that the last one's store is free: unlike the problem says."""
    stored = [] if plan is None else [size for group in plan.groups for size in [_stored(group.stored)] * group.layers]
    return 1000 + sum(stored[:-1])


def _stored(ops: tuple[int, ...]) -> int:
    return sum(SIZES[op] for op in ops)


def by(name: str) -> Callable[[RecomputeLayerProblem, Limits], Solution[RecomputeLayerPlan]]:
    return lambda problem, limits: solve(build_solver(name, {}), problem, limits).solution


@pytest.mark.parametrize("budget", [1000, 1030, 1100, 1200, 1290, 1315, 1400])
def test_the_single_policy_is_nearly_the_best_that_fits(budget: int) -> None:
    """Beside all sixteen: `heu` sees them by room, in which the working set counts, so that it may miss the best."""
    every = [
        BLOCKS * (sum(TIMES) - sum(TIMES[op] for op in stored))
        for count in range(5)
        for stored in combinations(range(4), count)
        if 1000 + (BLOCKS - 1) * _stored(stored) <= budget
    ]
    problem, solution = decide(by("heu"), Limits(), LAYER, BLOCKS, budget, peak_of)
    assert solution.plan is not None and solution.objective is not None
    assert peak_of(solution.plan) <= budget
    assert min(every) <= solution.objective <= min(every) + BLOCKS * 2
    assert problem.budget_bytes >= budget


def test_with_room_for_everything_nothing_runs_again() -> None:
    _, solution = decide(by("heu"), Limits(), LAYER, BLOCKS, 2000, peak_of)
    assert solution.objective == 0


def test_less_than_nothing_stored_is_refused_with_that() -> None:
    with pytest.raises(InfeasibleBudget, match="budget is 999 bytes, the least feasible one 1000"):
        decide(by("heu"), Limits(), LAYER, BLOCKS, 999, peak_of)


def test_a_refusal_names_a_plan_that_takes_less_than_storing_nothing() -> None:
    """What runs again all at once may take more than some of it stored, as attention's weights that blocks return."""

    def heavier(plan: RecomputeLayerPlan | None) -> int:
        everything = plan is None or not any(group.stored for group in plan.groups)
        return 1500 if everything else peak_of(plan)

    with pytest.raises(InfeasibleBudget, match="a plan of those that were tried peaks") as refused:
        decide(by("heu"), Limits(), LAYER, BLOCKS, 999, heavier)
    least = refused.value.least_budget_bytes
    assert least is not None and 1000 < least < 1500
    _, solution = decide(by("heu"), Limits(), LAYER, BLOCKS, least, heavier)
    assert heavier(solution.plan) == least


def test_where_no_plan_of_the_solver_fits_nothing_is_stored() -> None:
    """A rule may know plans only that are too large."""

    def greedy(problem: RecomputeLayerProblem, limits: Limits) -> Solution[RecomputeLayerPlan]:
        return by("heu")(msgspec.structs.replace(problem, budget_bytes=10**6), limits)

    _, solution = decide(greedy, Limits(), LAYER, BLOCKS, 1000, peak_of)
    assert solution.solver == "full" and peak_of(solution.plan) == 1000


def test_all_questions_together_have_the_limits_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer of hundreds of operators was listed anew for each room: minutes where the limit was five seconds."""
    now, given = 0.0, list[float]()

    def slow(problem: RecomputeLayerProblem, limits: Limits) -> Solution[RecomputeLayerPlan]:
        nonlocal now
        given.append(limits.time_s)
        now += limits.time_s
        return by("heu")(problem, Limits())

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    decide(slow, Limits(time_s=8.0), LAYER, BLOCKS, 1200, peak_of)
    assert given[:3] == [4.0, 2.0, 1.0]
    assert len(given) > 10 and sum(given) <= 8
