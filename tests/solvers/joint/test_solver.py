"""`joint`: optimal on most tiny problems, never worse than a single technique, repeatable, interruptible, certified."""

import math

import pytest
from msgspec.structs import replace

from solvers.check import check_plan, prove
from solvers.ir import InvalidInput, Limits, Status
from solvers.ir.codec import plan_file
from solvers.ir.errors import BayplanError
from solvers.joint import GreedyJoint, Joint
from solvers.joint.draft import measure
from solvers.joint.gaps import planned
from solvers.joint.given import given_of
from solvers.joint.greedy import Hiding, greedy
from solvers.joint.moment import Proof, Relaxation
from solvers.joint.singles import recompute_only, swap_only
from tests.solvers.joint.brute_force import optimum, random_problem
from tests.solvers.joint.layered import layered

WORK = Limits(work=0.1, seed=1)


def test_most_tiny_problems_are_solved_best() -> None:
    known = best = 0
    for seed in range(24):
        problem = random_problem(seed)
        least = optimum(problem)
        if least is not None:
            solution = Joint().solve(problem, Limits(work=0.2))
            assert solution.objective is not None and solution.objective >= least, seed
            known, best = known + 1, best + (solution.objective == least)
    assert best >= 0.9 * known


def test_layers_get_a_certified_gap_and_beat_each_technique_alone() -> None:
    problem = layered(0.1)
    solution = Joint().solve(problem, WORK)
    assert solution.plan is not None and solution.objective is not None and solution.bound is not None
    file = plan_file(solution, "joint", None)
    verdict = check_plan(problem, file)
    assert verdict.violations == () and prove(problem, file, verdict).is_proven
    given = given_of(problem)
    for single in (swap_only(given, WORK), recompute_only(given, WORK)):
        assert single is not None and solution.objective < measure(given, single).objective_us
    greedy = GreedyJoint().solve(problem, WORK)
    assert greedy.objective is not None and solution.objective <= greedy.objective
    assert solution.gap is not None and solution.gap < 0.05


def test_no_bound_needs_no_certificate_and_enough_memory_needs_no_search() -> None:
    for position in (1.0, 1.1):
        solution = Joint().solve(layered(position), WORK)
        assert (solution.status, solution.objective) == (Status.OPTIMAL, solution.base)
        assert solution.certificate is None
    few = replace(layered(0.5), budget_bytes=1)
    solution = Joint().solve(few, WORK)
    assert solution.status is Status.INFEASIBLE and solution.reason is not None
    assert f"exactly {solution.least_budget_bytes} bytes" in solution.reason


def test_the_least_budget_has_a_plan() -> None:
    solution = Joint(singles=False).solve(layered(0.0, layers=2), Limits(time_s=math.inf, work=0.01))
    assert solution.plan is not None
    assert check_plan(layered(0.0, layers=2), plan_file(solution, "joint", None)).violations == ()


def test_an_interrupt_keeps_the_best_so_far() -> None:
    def interrupted(incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        raise KeyboardInterrupt

    solution = Joint().solve(layered(0.1), Limits(time_s=math.inf), interrupted)
    assert solution.plan is not None and solution.reason is not None and "stopped by the user" in solution.reason


def test_a_watch_may_stop_it_and_sees_progress() -> None:
    seen: list[tuple[float | None, float | None]] = []

    def watch(incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        seen.append((incumbent, bound))
        return len(seen) >= 40

    solution = Joint().solve(layered(0.1), Limits(time_s=math.inf), watch)
    assert solution.plan is not None and len(seen) >= 40
    costs = [incumbent for incumbent, _ in seen if incumbent is not None]
    assert costs == sorted(costs, reverse=True)


def test_an_engine_without_duals_is_refused() -> None:
    with pytest.raises(InvalidInput, match="dual values"):
        Joint(engine="cpsat").solve(layered(0.1), WORK)


def test_no_time_at_all_still_finds_a_plan() -> None:
    solution = Joint().solve(layered(0.1), Limits(time_s=0))
    assert solution.status is Status.FEASIBLE
    assert check_plan(layered(0.1), plan_file(solution, "joint", None)).violations == ()


def test_an_engine_that_refuses_the_numbers_takes_no_plan_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Relaxation, limits: Limits, engine: str) -> Proof | None:
        raise BayplanError("HiGHS could not take the model: too large a number")

    monkeypatch.setattr(Relaxation, "proof", refused)
    solution = Joint(singles=False).solve(layered(0.1), WORK)
    assert solution.plan is not None and solution.reason is not None
    assert solution.reason.count("could not take the model") == 1


def test_a_bound_above_the_objective_is_a_fault_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    def false(self: Relaxation, limits: Limits, engine: str) -> Proof:
        return Proof(self.q, 10**9, {}, {})

    monkeypatch.setattr(Relaxation, "proof", false)
    with pytest.raises(ValueError, match="above its own objective"):
        Joint(singles=False).solve(layered(0.1), WORK)


def test_each_part_that_may_take_long_stops_when_told() -> None:
    given = given_of(layered(0.1))
    assert greedy(given, lambda: True) is None and not Hiding(given, lambda: True).worth
    assert next(planned(given, [], lambda: Limits(), "highs", lambda: True), None) is None
