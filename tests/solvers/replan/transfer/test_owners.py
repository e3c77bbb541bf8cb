"""Who holds what, who is idle, and what only a checkpoint brings back."""

from solvers.check.replan.judge import judge_replan
from solvers.ir.replan import ReplanPlan
from solvers.replan.transfer.owners import checkpoint_reasons, held_layers, idle_nodes, layer_bytes, unowned_layers
from solvers.replan.transfer.restore import restore
from tests.solvers.replan.transfer.instances import cluster


def test_survivors_hold_their_stages() -> None:
    problem = cluster([(2, 1), (1, 2)], [0])
    assert held_layers(problem) == {1: (2, 3), 2: (0, 1), 3: (1, 3)}
    assert unowned_layers(problem) == () and checkpoint_reasons(problem) == ()


def test_idle_nodes_get_the_smallest_ids_that_nobody_has() -> None:
    assert idle_nodes(cluster([(2, 1), (1, 2)], [0], idle=2)) == (4, 5)
    assert idle_nodes(cluster([(2, 1)], [1])) == ()


def test_a_layer_whose_every_holder_failed_is_told() -> None:
    problem = cluster([(2, 1, 2), (1, 3, 1)], [0, 3, 4])
    assert unowned_layers(problem) == (0, 1)
    (reason,) = checkpoint_reasons(problem)
    assert reason == "layers 0-1 of 5 have no holder alive: load a checkpoint"


def test_runs_of_lost_layers_are_shortened() -> None:
    (reason,) = checkpoint_reasons(cluster([(2, 1, 1, 1)], [0, 2]))
    assert reason.startswith("layers 0-1, 3 of 5 ")


def test_a_failed_nodes_optimizer_shard_has_no_replica() -> None:
    problem = cluster([(2, 1), (2, 1)], [3], sharded_optimizer=True)
    (reason,) = checkpoint_reasons(problem)
    assert reason == "the optimizer shards of nodes 3 have no replica: load a checkpoint"


def test_sharded_states_are_whole_while_nobody_fails() -> None:
    assert checkpoint_reasons(cluster([(2, 1), (2, 1)], [], idle=1, sharded_optimizer=True)) == ()


def test_the_judge_refuses_exactly_what_needs_a_checkpoint() -> None:
    for failed, sharded in (([1], False), ([1], True), ([1, 3], False), ([], True)):
        problem = cluster([(2, 1), (2, 1)], failed, sharded_optimizer=sharded)
        restored = restore(problem, [((3,), 4)])
        plan = ReplanPlan(policy="dynamic", pipelines=restored.pipelines, transfers=restored.transfers)
        assert bool(judge_replan(problem, plan).violations) == bool(checkpoint_reasons(problem))


def test_the_ends_carry_their_own_bytes() -> None:
    assert layer_bytes(cluster([(3,)], [], layer_bytes=10, first_static_bytes=1, last_static_bytes=2)) == (11, 10, 12)
    assert layer_bytes(cluster([(1,)], [], layer_bytes=10, first_static_bytes=1, last_static_bytes=2)) == (13,)
