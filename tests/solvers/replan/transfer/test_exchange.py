"""Nodes that exchange places on hosts: what a stage costs there, which exchanges are tried, and what they gain."""

import pytest

from solvers.replan.transfer import restore as restoring
from solvers.replan.transfer.exchange import Places, exchanged
from solvers.replan.transfer.restore import Restorer, restore
from solvers.replan.transfer.topology import Topology
from tests.solvers.replan.transfer.instances import cluster, random_case, restorable_seeds, splits
from tests.solvers.replan.transfer.joint import joint

THREES = Topology(nodes_per_host=3, inside_bytes_per_s=3_000_000, outside_bytes_per_s=1_000_000)


def test_what_the_host_has_comes_at_the_lower_price() -> None:
    """Nodes 0-2 hold layers 0-3 together, node 3 stands alone with layers 0 and 1."""
    held = {0: (0, 2), 1: (2, 3), 2: (3, 4), 3: (0, 2)}
    places = Places([(0, 4), (1, 3)], held, [10, 10, 10, 50], THREES)
    assert [places.received(node, 0) for node in (0, 3)] == [60, 180]
    assert [places.received(node, 1) for node in (0, 1, 2, 3)] == [10, 10, 20, 30]
    assert places.most_received((0, 3)) == 60


@pytest.mark.parametrize("seed", restorable_seeds(20))
def test_an_exchange_is_a_mapping_and_no_way_gets_worse(seed: int) -> None:
    problem, pipelines = random_case(seed, even_sizes=False)
    restorer = Restorer(problem, THREES)
    stages = restorer.stages(pipelines)
    places = Places(stages, restorer._held, restorer.sizes, THREES)
    first = restorer._way(stages, tuple(sorted(restorer._held)[: len(stages)]), 0)
    for nodes in places.neighbours(first):
        assert len(set(nodes)) == len(stages) and set(nodes) <= set(restorer._held)
        assert 1 <= sum(a != b for a, b in zip(nodes, first.nodes, strict=True)) <= 2
    better = exchanged([first], places, lambda nodes, least: restorer._way(stages, nodes, least), 0)
    assert better.load <= first.load


def test_exchanges_find_what_mappings_alone_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 202: mappings by price take twice the joint optimum."""
    problem, pipelines = random_case(202)
    best = THREES.time_us(joint(problem, pipelines, THREES).busiest)
    assert restore(problem, pipelines, THREES).transfer_us == best
    monkeypatch.setattr(restoring, "_FEW_STAGES", 0)
    assert restore(problem, pipelines, THREES).transfer_us == 2 * best


def test_what_many_nodes_lack_is_not_asked_of_one_host() -> None:
    """Hosts of eight, each a whole pipeline: who sends to its neighbours sends to few of them."""
    problem = cluster([(4,) * 8] * 32, [3, 77])
    eights = Topology(nodes_per_host=8, inside_bytes_per_s=8_000_000, outside_bytes_per_s=1_000_000)
    restored = restore(problem, splits([9] * 28, 32), eights)
    assert restored.transfer_us == eights.transfer_us(problem, restored.transfers) <= 500
