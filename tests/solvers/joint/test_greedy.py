"""`greedy-joint`: valid plans, what it prefers, and what the link carries for nothing."""

from msgspec.structs import replace

from solvers.check.joint.judge import judge_joint
from solvers.ir import Limits, Status
from solvers.joint import GreedyJoint
from solvers.joint.choice import where
from solvers.joint.draft import measure
from solvers.joint.given import given_of
from solvers.joint.greedy import EVICTED, Hiding
from solvers.joint.singles import recompute_only, swap_only
from tests.solvers.joint.brute_force import random_problem
from tests.solvers.joint.layered import layered


def test_plans_are_valid() -> None:
    found = 0
    for seed in range(40):
        problem = random_problem(seed)
        solution = GreedyJoint().solve(problem, Limits())
        if solution.plan is not None:
            assert judge_joint(problem, solution.plan).objective_us == solution.objective, seed
            found += solution.status is Status.FEASIBLE
    assert found > 6


def test_both_techniques_are_used_where_the_link_is_short_of_time() -> None:
    problem = layered(0.1)
    solution = GreedyJoint().solve(problem, Limits())
    assert solution.plan is not None and solution.objective is not None
    assert judge_joint(problem, solution.plan).objective_us == solution.objective
    assert solution.plan.swap and len(solution.plan.compute) > len(problem.ops)
    given = given_of(problem)
    for single in (swap_only(given, Limits(), quick=True), recompute_only(given, Limits(work=0.2))):
        assert single is not None and measure(given, single).objective_us > solution.objective


def test_what_the_link_hides_ends_in_time() -> None:
    given = given_of(layered(0.1))
    hiding = Hiding(given)
    for early in (False, True):
        chosen = hiding.swaps(early=early, enough=False)
        assert chosen
        for e in chosen:  # what op e or a later one made leaves after stage e and before the hardest stage
            room = hiding.ends[hiding.stage] - hiding.ends[e + 1]
            assert sum(given.out_time[i] for i in chosen if i >= e) <= room
            back = hiding.ends[hiding.last[e]] - hiding.ends[hiding.stage + 1]
            assert sum(given.in_time[i] for i in chosen if hiding.last[i] <= hiding.last[e]) <= back
    assert len(hiding.swaps(link=0.5, enough=False)) < len(hiding.swaps(enough=False))


def test_what_is_read_behind_communication_alone_is_not_computed_again() -> None:
    """From a reader back to the first stage all communicate: there is no stage for a recomputation."""
    problem = layered(0.1, layers=1)
    comm = tuple(replace(op, comm=True) for op in problem.ops)
    given = given_of(replace(problem, ops=comm))
    assert where(given, len(comm) - 1, 0) is None
    assert GreedyJoint().solve(replace(problem, ops=comm), Limits()).status is not Status.INFEASIBLE


def test_there_is_always_a_plan_but_where_the_host_is_limited() -> None:
    for seed in range(60):
        problem = replace(random_problem(seed), host_budget_bytes=None)
        assert GreedyJoint().solve(problem, Limits()).status is not Status.UNKNOWN, seed


def test_what_the_host_cannot_take_is_computed_again() -> None:
    """Prices let the greedy swap there, until no plan was left."""
    for seed, most in ((5097, 16), (5249, 35), (5167, 32)):
        problem = replace(random_problem(seed), host_budget_bytes=0)
        solution = GreedyJoint().solve(problem, Limits())
        assert solution.plan is not None and solution.plan.swap == (), seed
        assert judge_joint(problem, solution.plan).objective_us == solution.objective, seed
        assert solution.objective is not None and solution.objective <= most, seed


def test_out_of_time_stopped_or_interrupted_everything_is_swapped() -> None:
    def interrupt(incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        assert bound is None
        raise KeyboardInterrupt

    stopped = GreedyJoint().solve(layered(0.1), Limits(), lambda incumbent, bound, elapsed_s: True)
    interrupted = GreedyJoint().solve(layered(0.1), Limits(), interrupt)
    late = GreedyJoint().solve(layered(0.1), Limits(time_s=0))
    assert late.objective is not None and stopped.objective is not None
    assert late.reason == EVICTED and late.objective < stopped.objective
    for solution in (stopped, interrupted):
        assert solution.plan is not None and solution.reason is not None
        assert "everything is swapped" in solution.reason
        assert judge_joint(layered(0.1), solution.plan).objective_us == solution.objective
    assert interrupted.reason is not None and "stopped by the user" in interrupted.reason
