"""Which node takes which stage: Kuhn-Munkres over what each node would have to receive (paper IV-B; F9 [R]).

The cost of node i in stage j is the load of the layers that j needs and i does not hold; stages that no node takes
and nodes that take no stage cost nothing. Nodes alike are one kind, and stages alike are one kind.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from solvers.replan.transfer.owners import Interval
from solvers.replan.transfer.topology import Topology
from solvers.replan.transfer.transportation import transport


@dataclass(frozen=True)
class NodeKind:
    """Nodes that hold the same layers, on hosts whose nodes alive hold the same layers together.

    Where there are hosts, each kind's `nodes` begin with another one: those handed out last, which lack the most, would
    otherwise all stand on the last hosts.
    """

    held: Interval
    nearby: frozenset[int]
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class NodeMapping:
    """The node of each stage, the load that all of them receive together, and that of the one which receives most."""

    nodes: tuple[int, ...]
    received: int
    most: int


def node_kinds(held: Mapping[int, Interval], topology: Topology) -> tuple[NodeKind, ...]:
    """The nodes alive (idle ones hold nothing) by kind, in a fixed order."""
    nearby: dict[int, frozenset[int]] = {}
    if topology.nodes_per_host > 1:
        hosts: dict[int, set[Interval]] = {}
        for node, interval in held.items():
            hosts.setdefault(topology.host(node), set()).add(interval)
        nearby = {host: frozenset(layer for run in runs for layer in range(*run)) for host, runs in hosts.items()}
    kinds: dict[tuple[Interval, frozenset[int]], list[int]] = {}
    for node in sorted(held):
        kinds.setdefault((held[node], nearby.get(topology.host(node), frozenset())), []).append(node)
    listed = sorted(kinds.items(), key=lambda kind: kind[1][0])
    turn = [number * len(nodes) // len(kinds) if nearby else 0 for number, (_, nodes) in enumerate(listed)]
    return tuple(
        NodeKind(interval, near, (*nodes[start:], *nodes[:start]))
        for start, ((interval, near), nodes) in zip(turn, listed, strict=True)
    )


def received_load(
    kinds: Sequence[NodeKind], needs: Sequence[Interval], sizes: Sequence[int], topology: Topology
) -> NDArray[np.int64]:
    """F9 in loads: what a node of each kind (row) receives to take a stage of each need (column)."""
    sums = np.zeros((len(kinds), len(sizes) + 1), dtype=np.int64)
    prices = sums[:, 1:]
    prices[:] = topology.outside_price
    for row, kind in enumerate(kinds):
        if kind.nearby:
            prices[row, list(kind.nearby)] = topology.inside_price
        prices[row, kind.held[0] : kind.held[1]] = 0
    prices *= np.array(sizes, dtype=np.int64)
    np.cumsum(prices, axis=1, out=prices)
    first, end = np.array(needs, dtype=np.int64).reshape(-1, 2).T
    return sums[:, end] - sums[:, first]


def map_nodes(
    kinds: Sequence[NodeKind],
    stages: Sequence[Interval],
    sizes: Sequence[int],
    topology: Topology,
    *,
    prices: Sequence[int] | None = None,
    limit: int | None = None,
) -> NodeMapping | None:
    """The mapping that receives least in all, no node more than `limit`; None where no mapping keeps the limit.

    Exactly least, or cheapest where `prices` say what each layer costs instead of its size. Among nodes of one kind the
    smallest ids take the earliest stages.
    """
    alike = alike_stages(stages)
    load = received_load(kinds, list(alike), sizes, topology)
    priced = load if prices is None else received_load(kinds, list(alike), prices, topology)
    cost = priced.astype(np.float64)
    if limit is not None:
        cost[load > limit] = np.inf
    supply = np.array([len(kind.nodes) for kind in kinds], dtype=np.int64)
    flow = transport(cost, supply, np.array([len(group) for group in alike.values()], dtype=np.int64))
    return None if flow is None else hand_out(flow, kinds, list(alike.values()), load)


def alike_stages(stages: Sequence[Interval]) -> dict[Interval, list[int]]:
    """The stages that need each run of layers, by number."""
    alike: dict[Interval, list[int]] = {}
    for stage, need in enumerate(stages):
        alike.setdefault(need, []).append(stage)
    return alike


def hand_out(
    flow: NDArray[np.int64], kinds: Sequence[NodeKind], groups: Sequence[Sequence[int]], load: NDArray[np.int64]
) -> NodeMapping:
    """Names the nodes of a flow from kinds to groups of stages: each kind's in order, to each group's in order."""
    mapped = [0] * sum(len(group) for group in groups)
    free, nodes = [iter(group) for group in groups], [iter(kind.nodes) for kind in kinds]
    some = np.nonzero(flow)
    for kind, group, amount in zip(*(part.tolist() for part in some), flow[some].tolist(), strict=True):
        for stage, node in zip(islice(free[group], amount), nodes[kind], strict=False):
            mapped[stage] = node
    return NodeMapping(tuple(mapped), int((flow * load).sum()), int(load[flow > 0].max(initial=0)))
