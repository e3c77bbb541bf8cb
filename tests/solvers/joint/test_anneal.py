"""Annealing: only better drafts are told, all of them valid, the same ones from the same seed; it stops when told."""

import random

import pytest
from msgspec.structs import replace

from experiments.joint.cases import Case
from solvers.ir import JointProblem
from solvers.joint.anneal import Annealing
from solvers.joint.choice import swap_all
from solvers.joint.draft import draft_of, measure, plan_of
from solvers.joint.given import given_of
from solvers.joint.greedy import greedy
from solvers.joint.instances import at_position
from solvers.joint.lanes import FAULT
from tests.solvers.joint.brute_force import random_problem
from tests.solvers.joint.layered import layered


def _told(problem: JointProblem, steps: int, seed: int = 1, is_greedy: bool = True) -> list[int]:
    """The objectives of the drafts told, each measured, from the greedy's or that of everything swapped on."""
    given = given_of(problem)
    annealing = Annealing(given, (greedy(given) if is_greedy else None) or swap_all(given), random.Random(seed))
    objectives = [given.whole_us(annealing.now)]
    for draft in annealing.drafts(steps, 0.001 * sum(given.time), lambda: False):
        found = measure(given, draft)
        assert found.violation is None
        objectives.append(found.objective_us)
        assert draft_of(given, plan_of(given, draft)).away == draft.away
    assert objectives[-1] == given.whole_us(annealing.best)
    return objectives


def test_layers_end_sooner_from_step_to_step() -> None:
    told = _told(layered(0.02), 600)
    assert told == sorted(told, reverse=True) and told[-1] < told[0]
    assert told == _told(layered(0.02), 600) and told != _told(layered(0.02), 600, seed=2)


def test_communication_hides_what_runs_again() -> None:
    problem = Case("llama-3-8b", "a100-sxm-80", 0.02, 8).problem()
    told = _told(problem, 400)
    assert told[-1] < told[0]


@pytest.mark.parametrize("shared", [False, True])
def test_random_problems_stay_valid(shared: bool) -> None:
    better = 0
    for seed in range(60):
        problem = random_problem(seed)
        problem = replace(at_position(problem, 0.3), comm_shares_link=shared)
        given = given_of(problem)
        if Annealing(given, swap_all(given), random.Random(seed)).now < FAULT:
            told = _told(problem, 200, seed, is_greedy=False)
            better += told[-1] < told[0]
    assert better > 10


def test_it_stops_when_told() -> None:
    given = given_of(layered(0.1))
    annealing = Annealing(given, swap_all(given), random.Random(1))
    assert list(annealing.drafts(10**9, 1.0, lambda: True)) == []
