"""A thousand random tiny problems: no bound of a moment or stretch is false, no plan invalid or beyond the best."""

import pytest

from solvers.check import check_plan
from solvers.check.joint.bound import add_up
from solvers.check.joint.stretches import add_up as add_up_stretches
from solvers.engines.duals import UNIT
from solvers.ir import JointProblem, Limits
from solvers.ir.codec import plan_file
from solvers.joint import Joint, crowded
from solvers.joint.branch import split
from solvers.joint.given import given_of
from solvers.joint.moment import Relaxation
from solvers.joint.stretch import Stretch
from solvers.joint.stretches import together
from tests.solvers.joint.brute_force import optimum, random_problem

FIRST, COUNT = 1000, 1200


@pytest.mark.soak
def test_no_false_bound_in_a_thousand() -> None:
    feasible = told = late = best = tight = short = 0
    for seed in range(FIRST, FIRST + COUNT):
        problem = random_problem(seed)
        known, given = optimum(problem), given_of(problem)
        optimum.cache_clear()
        for stage in range(len(given) - 1):
            proof = Relaxation(given, stage).proof(Limits(), "highs")
            if proof is None:  # not even this moment has room
                assert known is None, (seed, stage)
                continue
            faults, bound = add_up(problem, proof.certificate)
            assert faults == [] and proof.bound_us <= bound, (seed, stage)
            assert known is None or bound <= known, (seed, stage, bound, known)
            told += proof.bound_us > given.base_us
        late += _stretches(problem, known)
        solution = Joint().solve(problem, Limits(work=0.5))
        verdict = check_plan(problem, plan_file(solution, "joint", None))
        assert [said for said in verdict.violations if "no decision" not in said] == [], seed
        if known is not None:
            assert solution.bound is not None and solution.bound <= known, seed
            assert solution.objective is None or solution.objective >= known, seed
            feasible, best = feasible + 1, best + (solution.objective == known)
            short += known > given.base_us
            tight += known > given.base_us and solution.objective == known
    print(
        f"{feasible} of {COUNT} feasible, {short} above their base, of these the best plan found in {tight}; "
        f"best plan found in {best} of all; {told} bounds of moments, {late} of stretches above the base, none false"
    )
    assert told > COUNT // 20 and late > COUNT // 4


def _stretches(problem: JointProblem, known: int | None) -> int:
    """How many stretches from some stage to the end prove more than the base; none proves more than the optimum."""
    given, late = given_of(problem), 0
    end, everything = len(given) - 1, set(range(len(given)))
    for first in range(end):
        stretch = Stretch(given, first, end, everything)
        root = crowded.proof(stretch, Limits(), "highs")
        assert root is not None or known is None, (problem.name, first)
        if root is None:
            continue
        proof = split(stretch, root, Limits(), "highs")
        faults, bound = add_up_stretches(problem, {"form": "stretches/1", "unit": UNIT, "stretches": [proof.part]})
        assert faults == [] and together(given, [proof]).bound_us <= bound, (problem.name, first)
        assert known is None or bound <= known, (problem.name, first, bound, known)
        late += together(given, [proof]).bound_us > given.base_us
    return late
