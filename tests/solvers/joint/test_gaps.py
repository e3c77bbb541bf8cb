"""Model G: its choices are plans, nearly as good as the search's from the start, and follow a relaxation."""

from msgspec.structs import replace

from solvers.check.joint.judge import judge_joint
from solvers.ir import JointProblem, Limits
from solvers.joint import GreedyJoint
from solvers.joint.choice import Choice
from solvers.joint.draft import kept_of, plan_of
from solvers.joint.gaps import GapModel, planned
from solvers.joint.given import given_of
from solvers.joint.moment import Proof
from solvers.joint.moments import moments
from solvers.joint.swaps import timed
from tests.solvers.joint.brute_force import random_problem
from tests.solvers.joint.layered import layered


def choices(problem: JointProblem) -> list[Choice]:
    given = given_of(problem)
    proofs = [Proof(stage, given.base_us, {}, {}) for stage in moments(given)]
    return list(planned(given, proofs, lambda: Limits(time_s=60), "highs", lambda: False))


def test_choices_are_valid_plans_and_the_best_is_no_worse_than_the_greedy() -> None:
    for position in (0.02, 0.15):
        problem = layered(position)
        given, found = given_of(problem), []
        for choice in choices(problem):
            draft, measured = timed(given, choice)
            assert judge_joint(problem, plan_of(given, draft)).objective_us == measured.objective_us
            found.append(measured.objective_us)
        greedy = GreedyJoint().solve(problem, Limits()).objective
        assert greedy is not None and min(found) <= greedy


def test_tiny_problems_of_all_sorts_are_planned_or_left() -> None:
    """Hosts with limits, communication, nothing that may run again: no choice is a fault of recomputations."""
    planned_at_all = 0
    for seed in range(40):
        problem = random_problem(seed)
        given = given_of(problem)
        for choice in choices(replace(problem, host_budget_bytes=None)):
            assert kept_of(given, choice.again).fault is None, seed
            planned_at_all += 1
    assert planned_at_all > 40


def test_a_relaxation_is_followed_where_it_does_so_by_half() -> None:
    given = given_of(layered(0.1))
    model, stage = GapModel(given), len(given) // 2
    gaps = [gap for gap in model.gaps if gap[1] < stage < gap[2]]
    swaps = Proof(stage, 0, {}, {f"swap/{i}": 0.6 for i, _, _ in gaps})
    assert model.followed(swaps).away == {(i, a) for i, a, _ in gaps}
    again = model.followed(Proof(stage, 0, {}, {f"again/{i}": 0.3 for i, _, _ in gaps} | {"hide/1": 0.2}))
    assert not again.away and {i for run in again.again for i in run} <= {1}
