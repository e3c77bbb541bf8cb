"""Nodes that exchange stages to keep to a load: what is told of them is true, and hosts share what one is asked for."""

import random

from solvers.replan.transfer.owners import Interval
from solvers.replan.transfer.spread import Spread
from solvers.replan.transfer.topology import Topology

PAIRS = Topology(nodes_per_host=2, inside_bytes_per_s=3, outside_bytes_per_s=1)


def judged(spread: Spread, stages: list[Interval], held: dict[int, Interval], sizes: list[int], where: Topology) -> int:
    """The busiest node's load, added up anew; every node has all that its stage needs, from somebody who holds it."""
    loads: dict[tuple[int, bool], int] = {}
    sources = spread.sending
    assert len(set(spread.nodes)) == len(stages)
    needed = {
        (node, layer)
        for node, stage in zip(spread.nodes, stages, strict=True)
        for layer in range(*stage)
        if not held[node][0] <= layer < held[node][1]
    }
    assert needed == set(sources)
    for (node, layer), source in sources.items():
        assert held[source][0] <= layer < held[source][1]
        for key in ((source, True), (node, False)):
            loads[key] = loads.get(key, 0) + sizes[layer] * where.price(source, node)
    assert loads == {key: load for key, load in spread.busy.items() if load}
    return max(loads.values(), default=0)


def test_neighbours_of_one_owner_go_to_hosts_whose_owners_send_nothing() -> None:
    """Three hosts of four; both idle neighbours of node 0 take its layer, those of nodes 4 and 8 nothing."""
    fours = Topology(nodes_per_host=4, inside_bytes_per_s=4, outside_bytes_per_s=1)
    held: dict[int, Interval] = {node: (0, 1) if node % 4 == 0 else (1, 2) for node in range(12)}
    stages, nodes = [(0, 1)] * 6 + [(1, 2)] * 6, [0, 4, 8, 1, 2, 3, 5, 6, 7, 9, 10, 11]
    sources = {(node, 0): 0 for node in (1, 2, 3)}
    spread = Spread(stages, nodes, sources, held, [1, 1], fours, fours.inside_price)
    assert spread.run() and judged(spread, stages, held, [1, 1], fours) == fours.inside_price


def test_whatever_is_exchanged_adds_up() -> None:
    for seed in range(200):
        draw = random.Random(seed)
        held: dict[int, Interval] = {0: (0, 3)}
        for node in range(1, 8):
            first = draw.randint(0, 2)
            held[node] = draw.choice([(0, 0), (first, draw.randint(first + 1, 3))])
        stages = draw.choices([(0, 3), (0, 1), (1, 3), (0, 2), (2, 3)], k=draw.randint(2, 8))
        nodes = draw.sample(range(8), len(stages))
        sizes = [draw.randint(1, 3) for _ in range(3)]
        sources = {
            (node, layer): draw.choice([other for other, run in held.items() if run[0] <= layer < run[1]])
            for node, stage in zip(nodes, stages, strict=True)
            for layer in range(*stage)
            if not held[node][0] <= layer < held[node][1]
        }
        spread = Spread(stages, nodes, sources, held, sizes, PAIRS, draw.randint(1, 8))
        over = sum(max(0, load - spread._limit) for load in spread.busy.values())
        fits = spread.run()
        assert fits == (judged(spread, stages, held, sizes, PAIRS) <= spread._limit), seed
        assert sum(max(0, load - spread._limit) for load in spread.busy.values()) <= over
