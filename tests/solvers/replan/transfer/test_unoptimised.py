"""Baselines are valid plans, and never quicker than the optimum."""

from collections.abc import Callable, Sequence

import pytest

from solvers.check.replan.transfers import judge_mapping
from solvers.ir import InvalidInput
from solvers.ir.replan import ReplanPlan, ReplanProblem
from solvers.replan.transfer.restore import Restored, Split, restore
from solvers.replan.transfer.unoptimised import first_owners, rank_order, same_place
from tests.solvers.replan.transfer.instances import NOTES, cluster, front, random_case, restorable_seeds, splits

BASELINES = [rank_order, same_place, first_owners]
Baseline = Callable[[ReplanProblem, Sequence[Split]], Restored]


@pytest.mark.parametrize("baseline", BASELINES)
def test_they_are_valid_and_no_quicker_than_the_bound(baseline: Baseline) -> None:
    for seed in restorable_seeds(60, even_sizes=False):
        problem, pipelines = random_case(seed, even_sizes=False)
        plain, best = baseline(problem, pipelines), restore(problem, pipelines)
        plan = ReplanPlan(policy="dynamic", pipelines=plain.pipelines, transfers=plain.transfers)
        assert judge_mapping(problem, plan) == []
        assert plain.transfer_us >= best.least_us


@pytest.mark.parametrize(("before", "failed", "after", "layers", "busiest"), NOTES[4:])
def test_first_owners_are_as_slow_as_the_notes_found(
    before: list[int], failed: list[int], after: list[int], layers: int, busiest: int
) -> None:
    """Notes 3: 8 layer times for all four, against 5, 6, 6 and 6 with chosen senders."""
    problem = cluster([front(layers, depth) for depth in before], failed)
    assert first_owners(problem, splits(after, layers)).transfer_us == 8000 > 1000 * busiest


def test_rank_order_moves_much_more_than_it_needs_to() -> None:
    """Notes 3: [2]*4 -> [3, 2, 2] with 16 layers, 39 layers against 3: a straw man."""
    problem, new = cluster([(8, 8)] * 4, [7]), splits([3, 2, 2], 16)
    moved = [len(way(problem, new).transfers) for way in (rank_order, same_place, restore)]
    assert moved == [39, 7, 3]


def test_same_place_leaves_survivors_where_they_are() -> None:
    restored = same_place(cluster([(2, 2)] * 3, [1], idle=1), [((2, 2), 1), ((2, 2), 1)])
    assert [pipeline.nodes for pipeline in restored.pipelines] == [(0, 4), (2, 3)]
    shorter = same_place(cluster([(2, 2)] * 2, []), [((4,), 2), ((2, 2), 2)])
    assert [pipeline.nodes for pipeline in shorter.pipelines] == [(0,), (2, 3)]


@pytest.mark.parametrize("baseline", BASELINES)
def test_too_many_stages_are_refused(baseline: Baseline) -> None:
    with pytest.raises(InvalidInput, match="plan fewer stages"):
        baseline(cluster([(2, 2)] * 2, [1]), [((2, 2), 1)] * 2)
