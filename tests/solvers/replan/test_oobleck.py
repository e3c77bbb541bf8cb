"""Oobleck's reaction: shrink, borrow, merge; its templates instantiated; its guarantee."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.check.replan.judge import judge_replan
from solvers.ir import InvalidInput, Limits, ReplanProblem, Status
from solvers.replan.oobleck import Oobleck, nodes_left, regrouped
from tests.solvers.replan.clusters import before, grid

LIMITS = Limits()
TWO_STAGES = 20_000
"""Bytes of memory in which 32 layers take two stages at least."""


def depths(problem: ReplanProblem, solver: Oobleck) -> list[int]:
    return sorted((len(layers) for layers, _ in solver.splits(problem) or ()), reverse=True)


def test_a_pipeline_that_loses_a_node_takes_the_next_template() -> None:
    assert depths(grid(4, 2, 32, 16, failed=[1], memory_bytes=TWO_STAGES), Oobleck()) == [4, 3]


def test_a_short_pipeline_borrows_from_the_deepest() -> None:
    assert regrouped([1, 4, 3], 0, 2, 8) == [2, 3, 3]
    assert depths(grid(4, 2, 32, 16, failed=[0, 1, 2], memory_bytes=TWO_STAGES), Oobleck()) == [3, 2]


def test_without_a_node_to_spare_two_merge() -> None:
    assert regrouped([1, 2, 2], 0, 2, 8) == [3, 2]
    assert depths(grid(2, 4, 32, 16, failed=[7], memory_bytes=TWO_STAGES), Oobleck()) == [3, 2, 2]


def test_idle_nodes_help_first_then_form_pipelines() -> None:
    assert regrouped([1, 4], 1, 2, 8) == [2, 4]
    assert regrouped([2, 4], 5, 2, 8) == [3, 4, 2, 2]
    assert regrouped([8, 8], 1, 2, 8) == [8, 8]
    assert regrouped([9], 0, 2, 8) == [8]
    assert regrouped([1], 0, 2, 8) == []
    assert regrouped([0, 3], 0, 2, 8) == [3]


@settings(max_examples=300, deadline=None)
@given(
    alive=st.lists(st.integers(0, 7), max_size=6),
    idle=st.integers(0, 9),
    least=st.integers(1, 4),
    more=st.integers(0, 4),
)
def test_no_node_is_invented_and_none_wasted(alive: list[int], idle: int, least: int, more: int) -> None:
    most = least + more
    found = regrouped(alive, idle, least, most)
    nodes = sum(alive) + idle
    assert sum(found) <= nodes
    assert all(least <= depth <= most for depth in found)
    assert bool(found) == (nodes >= least)
    assert not found or nodes - sum(found) < least
    assert nodes == sum(found) or min(found, default=most) == most


def test_eight_to_seven_costs_what_the_judge_says() -> None:
    problem = grid(4, 2, 32, 16, failed=[6], memory_bytes=TWO_STAGES)
    solution = Oobleck().solve(problem, LIMITS)
    assert solution.plan is not None
    assert judge_replan(problem, solution.plan).objective_us == solution.objective
    assert problem.current is not None
    assert nodes_left(problem.current) == [4, 3]


def test_balanced_batches_are_never_slower() -> None:
    for failed in ([1], [1, 5], [0, 4, 9], [3, 7, 11]):
        problem = grid(4, 4, 32, 32, failed=failed, memory_bytes=TWO_STAGES)
        times = {}
        for rule in ("balanced", "proportional", "equal"):
            objective = Oobleck(batches=rule).solve(problem, LIMITS).objective
            assert objective is not None
            times[rule] = objective
        assert times["balanced"] <= min(times.values())


def test_the_guarantee_asks_for_pipelines_and_may_stop() -> None:
    problem = before(grid(4, 2, 32, 16, sync_us=10**7, memory_bytes=TWO_STAGES))
    assert len(Oobleck(faults=0).splits(problem) or ()) == 1
    assert len(Oobleck(faults=1).splits(problem) or ()) >= 2
    assert len(Oobleck(faults=3).splits(problem) or ()) == 4
    left = grid(4, 2, 32, 16, failed=[0, 1, 2, 3, 4], memory_bytes=TWO_STAGES)
    assert depths(left, Oobleck(below="continue")) == [3]
    stopped = Oobleck(below="stop").solve(left, LIMITS)
    assert stopped.status is Status.INFEASIBLE or "oobleck goes on with 4 or more" in (stopped.reason or "")


def test_instantiation_uses_every_node_and_finds_uneven_combinations() -> None:
    problem = before(grid(1, 13, 32, 26, memory_bytes=TWO_STAGES))
    every = Oobleck(most_instantiations=1000)
    splits, near = every.splits(problem), Oobleck(most_instantiations=1).splits(problem)
    assert splits is not None and near is not None
    assert sum(len(layers) for layers, _ in splits) == sum(len(layers) for layers, _ in near) == 13
    assert len({len(layers) for layers, _ in near}) <= 2
    best, other = (solver.solve(problem, LIMITS).objective for solver in (every, Oobleck(most_instantiations=1)))
    assert best is not None and other is not None
    assert best <= other


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'equal'"):
        Oobleck(batches="equl")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="did you mean 'stop'"):
        Oobleck(below="stopp")  # type: ignore[arg-type]
    for parameter in ("faults", "least_depth", "most_instantiations"):
        with pytest.raises(InvalidInput, match=f"{parameter} is -1"):
            Oobleck(**{parameter: -1})  # type: ignore[arg-type]


def test_reasons_without_a_plan() -> None:
    crowded = before(grid(1, 1, 3, 1, idle=3))
    assert [share for _, share in Oobleck(faults=0).splits(crowded) or ()] == [1]
    tight = before(grid(2, 1, 4, 1, layer_activation_bytes=900, memory_bytes=3900, max_depth=2))
    solution = Oobleck().solve(tight, LIMITS)
    assert solution.status is Status.UNKNOWN
    assert "full pipeline in flight" in (solution.reason or "")
