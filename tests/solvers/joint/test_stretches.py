"""Which stretches are bounded, and what they prove of layers where memory is shortest."""

import math
from functools import cache
from itertools import pairwise

from solvers.check import check_plan, prove
from solvers.check.joint.stretches import add_up
from solvers.ir import Limits
from solvers.ir.codec import plan_file
from solvers.joint import Joint
from solvers.joint.branch import PROGRAMS
from solvers.joint.given import given_of
from solvers.joint.moment import Relaxation
from solvers.joint.solver import FULL
from solvers.joint.stretches import LONGEST, MOST, Together, bounded, places, together, tracked
from tests.solvers.joint.brute_force import ample
from tests.solvers.joint.layered import layered

PROBLEM = layered(0.02, 2, "rtx-3090")
WORK = 0.01


@cache
def proven() -> tuple[Together, ...]:
    return tuple(bounded(given_of(PROBLEM), Limits, "highs", math.ceil(PROGRAMS * WORK / FULL)))


def test_places_share_ends_only_and_are_where_something_is_read() -> None:
    given = given_of(PROBLEM)
    found = places(given)
    assert 0 < len(found) <= MOST
    ordered = sorted(found)
    assert all(first < last for first, last in ordered)
    assert all(before <= after for (_, before), (after, _) in pairwise(ordered))
    assert all(last - first <= LONGEST + 8 for first, last in ordered)
    for first, last in ordered:
        read = {i for q in range(first + 1, last + 1) for i in given.graph.inputs[q]}
        followed = tracked(given, first, last)
        least = max(given.graph.size) // 100
        assert {i for i in read if given.graph.size[i] > least} <= followed


def test_with_ample_memory_there_are_none() -> None:
    assert places(given_of(ample(PROBLEM))) == []


def test_bounds_rise_and_add_up() -> None:
    bounds = [found.bound_us for found in proven()]
    assert bounds == sorted(bounds)
    for found in proven():
        faults, bound = add_up(PROBLEM, found.certificate)
        assert faults == [] and bound >= found.bound_us


def test_they_prove_more_than_any_moment_where_memory_is_shortest() -> None:
    given = given_of(PROBLEM)
    moments = (Relaxation(given, stage).proof(Limits(), "highs") for stage in range(len(given) - 1))
    assert proven()[-1].bound_us > max(proof.bound_us for proof in moments if proof is not None)


def test_the_plan_has_the_better_certificate_and_it_proves_the_bound() -> None:
    solution = Joint(singles=False).solve(PROBLEM, Limits(work=WORK))
    assert solution.bound == proven()[-1].bound_us
    file = plan_file(solution, "joint", None)
    assert file.certificate is not None and file.certificate["form"] == "stretches/1"
    verdict = check_plan(PROBLEM, file)
    assert verdict.violations == () and prove(PROBLEM, file, verdict).is_proven


def test_nothing_late_proves_the_base() -> None:
    assert together(given_of(PROBLEM), []).bound_us == sum(op.time_us for op in PROBLEM.ops)


def test_no_time_ends_it() -> None:
    assert list(bounded(given_of(PROBLEM), lambda: None, "highs")) == []
