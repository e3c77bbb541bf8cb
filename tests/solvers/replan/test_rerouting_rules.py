"""Rerouting is allowed exactly where the judge allows it."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.check.replan.judge import judge_replan
from solvers.ir import ReplanPlan, ReplanProblem
from solvers.replan.rerouting_rules import Grid, grid_of, places_of, rerouted_bytes, why_not_rerouted
from tests.solvers.replan.clusters import before, grid
from tests.strategies import replan_problems

REROUTE = ReplanPlan(policy="reroute", pipelines=(), transfers=None)


@settings(max_examples=400, deadline=None)
@given(problem=replan_problems())
def test_the_rules_are_the_judges(problem: ReplanProblem) -> None:
    assert (why_not_rerouted(problem) is None) == (judge_replan(problem, REROUTE).violations == ())


def test_a_grid_counts_failures_by_stage() -> None:
    problem = grid(3, 4, 6, 8, failed=[0, 3, 5])
    assert problem.current is not None
    assert grid_of(problem.current) == Grid(degree=4, layers=(2, 2, 2), microbatches=2, failed=(2, 0, 1))


@settings(max_examples=200, deadline=None)
@given(lost=st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=5), seed=st.randoms())
def test_pipelines_have_no_names(lost: list[list[bool]], seed: Random) -> None:
    """However they are numbered the places are the same, and they are those of the pipelines with losses first."""
    places = places_of(lost)
    seed.shuffle(lost)
    assert places_of(lost) == places
    patterns = [tuple(number in stage for stage in places) for number in range(len(lost))]
    assert sorted(patterns) == sorted(map(tuple, lost))
    assert [sum(one) for one in patterns] == sorted((sum(one) for one in lost), reverse=True)


def test_survivors_take_over_whole_microbatches() -> None:
    shared = Grid(degree=4, layers=(1, 1), microbatches=3, failed=(1, 0))
    assert [shared.most_microbatches(stage) for stage in range(2)] == [4, 3]


def test_each_reason_names_its_cause() -> None:
    assert "has no current" in (why_not_rerouted(before(grid(2, 2, 4, 4))) or "")
    assert "stage 0 has lost all its 2 nodes" in (why_not_rerouted(grid(2, 2, 4, 4, failed=[0, 2])) or "")
    assert "count 4 microbatches, but a step has 5" in (why_not_rerouted(grid(2, 2, 4, 5)) or "")
    full = grid(4, 2, 4, 2, failed=[0], memory_bytes=1100)
    assert why_not_rerouted(grid(4, 2, 4, 2, memory_bytes=1100)) is None
    assert why_not_rerouted(full) == (
        "stage 0 would need 1200 bytes, with the microbatches that it takes over, but a node has 1100: re-plan"
    )
    assert full.current is not None
    never = grid(4, 2, 4, 2, failed=[3], memory_bytes=1000)
    assert why_not_rerouted(never) == (
        "stage 0 would need 1100 bytes, though it takes over nothing, but a node has 1000: re-plan"
    )
    running = grid_of(full.current)
    assert running is not None
    assert list(rerouted_bytes(full, running)) == [1200, 1100, 1100, 1100]
