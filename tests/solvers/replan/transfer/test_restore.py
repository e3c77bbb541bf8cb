"""One call restores a cluster: valid for the judge, and as quick as the joint model of mapping and senders."""

import time
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.check.replan.judge import judge_replan
from solvers.check.replan.transfers import slowest_transfer_us
from solvers.ir import InvalidInput
from solvers.ir.replan import ReplanPlan, ReplanProblem
from solvers.replan.transfer.owners import checkpoint_reasons
from solvers.replan.transfer.restore import Restored, Restorer, Split, least_transfer_us, restore
from tests.solvers.replan.transfer.instances import NOTES, cluster, front, random_case, restorable_seeds, splits
from tests.solvers.replan.transfer.joint import joint


def judged(problem: ReplanProblem, restored: Restored) -> list[str]:
    """What the judge holds against nodes and transfers (microbatches and step time are not ours)."""
    plan = ReplanPlan(policy="dynamic", pipelines=restored.pipelines, transfers=restored.transfers)
    return [line for line in judge_replan(problem, plan).violations if "microbatches" not in line]


def restored_cleanly(problem: ReplanProblem, pipelines: list[Split]) -> Restored:
    restored = restore(problem, pipelines)
    assert judged(problem, restored) == []
    assert restored.transfer_us == slowest_transfer_us(problem, restored.transfers)
    assert [(pipeline.layers, pipeline.microbatches) for pipeline in restored.pipelines] == pipelines
    assert least_transfer_us(problem, pipelines) <= restored.least_us <= restored.transfer_us
    return restored


@pytest.mark.parametrize(("before", "failed", "after", "layers", "busiest"), NOTES)
def test_the_notes_cases_are_restored_optimally(
    before: list[int], failed: list[int], after: list[int], layers: int, busiest: int
) -> None:
    problem = cluster([front(layers, depth) for depth in before], failed)
    restored = restored_cleanly(problem, splits(after, layers))
    assert restored.transfer_us == restored.least_us == 1000 * busiest


@pytest.mark.parametrize(("before", "failed", "after", "layers", "busiest"), NOTES[:6])
def test_the_joint_model_moves_no_less_in_the_notes_cases(
    before: list[int], failed: list[int], after: list[int], layers: int, busiest: int
) -> None:
    problem = cluster([front(layers, depth) for depth in before], failed)
    best = joint(problem, splits(after, layers))
    assert best.proven and best.busiest == 1000 * busiest
    assert best.moved == 1000 * len(restore(problem, splits(after, layers)).transfers)


@pytest.mark.parametrize(
    ("seed", "even_sizes"), [(seed, even) for even in (True, False) for seed in restorable_seeds(40, even_sizes=even)]
)
def test_random_clusters_are_restored_as_quickly_as_the_joint_model_does(seed: int, even_sizes: bool) -> None:
    """So were 948 others, tried once."""
    problem, pipelines = random_case(seed, even_sizes=even_sizes)
    restored, best = restored_cleanly(problem, pipelines), joint(problem, pipelines)
    assert best.proven and restored.least_us <= best.busiest == restored.transfer_us


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_any_cluster_is_restored_as_the_judge_wants(seed: int, even_sizes: bool) -> None:
    problem, pipelines = random_case(seed, even_sizes=even_sizes)
    if checkpoint_reasons(problem):
        restored = restore(problem, pipelines)
        assert restored.unowned
        assert all("held by no node alive" in line for line in judged(problem, restored))
    else:
        restored_cleanly(problem, pipelines)


def test_senders_share_what_the_first_owner_would_send_alone() -> None:
    """Notes: [4]*4 losing node 5 and going on as [4, 4, 4, 3] took 8 layer times with first owners, now 5."""
    problem, new = cluster([(8,) * 4] * 4, [5]), splits([4, 4, 4, 3], 32)
    restored = restored_cleanly(problem, new)
    firsts = Counter(min(node for node in range(16) if node % 4 == move.layer // 8) for move in restored.transfers)
    assert max(firsts.values()) == 8 and restored.transfer_us == 5000


def test_layers_that_nobody_holds_are_told_and_not_sent() -> None:
    restored = restore(cluster([(2, 2), (2, 2)], [1, 3]), [((3, 1), 4)])
    assert restored.unowned == (2, 3) and {move.layer for move in restored.transfers} <= {0, 1}


def test_layers_without_bytes_are_still_sent() -> None:
    restored = restored_cleanly(cluster([(2, 2), (2, 2)], [1], layer_bytes=0), [((1, 3), 4)])
    assert restored.transfer_us == 0 and len(restored.transfers) > 0


def test_a_cluster_that_starts_afresh_names_its_nodes_in_order() -> None:
    problem = cluster([(2, 2)], [], current=None, restart_us=None, bytes_per_s=None, expected_interval_us=None)
    restored = restore(problem, [((3, 1), 2)])
    assert restored.pipelines[0].nodes == (0, 1) and restored.transfer_us == restored.least_us == 0


def test_more_stages_than_nodes_are_refused_in_a_sentence() -> None:
    with pytest.raises(InvalidInput, match="4 stages, but 3 nodes are alive: plan fewer stages"):
        restore(cluster([(2, 2), (2, 2)], [1]), [((2, 2), 2), ((2, 2), 2)])


def test_two_thousand_nodes_are_restored_in_a_fraction_of_a_second() -> None:
    """Best of three on a noisy machine; some 10-30 ms on an idle one."""
    problem = cluster([(5,) * 16] * 128, [5], first_static_bytes=601, last_static_bytes=1703)
    restorer = Restorer(problem)
    for depths in ([16] * 127 + [15], [15] * 136):
        new, taken = splits(depths, 80), []
        for _ in range(3):
            start = time.process_time()
            restored = restorer.restore(new)
            taken.append(time.process_time() - start)
        assert min(taken) < 0.2
        assert restored.transfer_us == restored.least_us
        assert restored == restore(problem, new)


def test_times_are_exact_fractions() -> None:
    restored = restore(cluster([(1, 1), (1, 1)], [3], layer_bytes=1, bytes_per_s=3), [((2,), 1)])
    assert restored.transfer_us == Fraction(1_000_000, 3)


def test_first_bytes_alone_are_shared_among_senders() -> None:
    """Layers that weigh nothing travel beside one that does, and no sender of theirs is called busy."""
    problem = cluster([(1, 1), (1, 1), (2,)], [0], layer_bytes=0, first_static_bytes=5, idle=3)
    restored = restored_cleanly(problem, [((2,), 1)] * 5)
    assert restored.transfer_us == restored.least_us == 10


def test_the_bound_is_made_of_whole_layers() -> None:
    """Two layers travel at least, to three nodes: two thirds of one on average, so that someone sends or gets one."""
    problem = cluster([(1, 3), (1, 3)], [3])
    assert restore(problem, [((2, 1, 1), 1)]).least_us == 1000
