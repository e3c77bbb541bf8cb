"""Exchanging the places of nodes where hosts make Kuhn-Munkres and the choice of senders inexact (two bandwidths).

A busiest node is less busy if it takes another stage, or if those to whom it sends do: so each of these exchanges its
stage with every other node, or hands it to an idle one, and senders are chosen anew. An exchange is kept if the busiest
node is less busy then, or fewer nodes are as busy.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from solvers.replan.transfer.owners import Interval
from solvers.replan.transfer.senders import Sending
from solvers.replan.transfer.topology import Topology

_WORK = 5_000
"""Stages and transfers that may be gone through in all: some 200 exchanges of 16 nodes, one of 2,048."""


@dataclass(frozen=True)
class Way:
    """One mapping with its senders, and what its busiest receiver receives at least."""

    nodes: tuple[int, ...]
    most_received: int
    sending: Sending

    @property
    def load(self) -> int:
        """What the busiest node receives or sends."""
        return max(self.most_received, self.sending.most)

    @property
    def badness(self) -> tuple[int, int]:
        """The busiest node's load, and how many nodes have it."""
        return self.load, len(self.busiest)

    @cached_property
    def busiest(self) -> frozenset[int]:
        """The nodes that send or receive as much as any (with one rate: that send)."""
        loads = (*self.sending.sent.items(), *self.sending.received.items())
        return frozenset(node for node, load in loads if load == self.load)

    def crowded(self, load: int) -> set[int]:
        """The layers sent by nodes whose load is at least this."""
        sources, crowded = self.sending.sources, {node for node, sent in self.sending.sent.items() if sent >= load}
        return {layer for (_, layer), source in sources.items() if source in crowded}


class Places:
    """What a node of a host receives at least for a stage: what its host has at the lower price."""

    def __init__(
        self, stages: Sequence[Interval], held: Mapping[int, Interval], sizes: Sequence[int], topology: Topology
    ) -> None:
        self.stages, self._held, self._sizes, self._topology = stages, held, sizes, topology
        self._near: dict[int, set[int]] = {}
        for node, run in held.items():
            self._near.setdefault(topology.host(node), set()).update(range(*run))
        self._known: dict[tuple[Interval, int, Interval], int] = {}

    def kind(self, node: int) -> tuple[Interval, int]:
        """What a node holds, and its host: nodes of one kind can replace each other."""
        return self._held[node], self._topology.host(node)

    def received(self, node: int, stage: int) -> int:
        """The load that the node has at least if it takes the stage."""
        (first, end), host = kind = self.kind(node)
        key = (*kind, self.stages[stage])
        if key not in self._known:
            lacking = [layer for layer in range(*self.stages[stage]) if not first <= layer < end]
            near, prices = self._near[host], (self._topology.outside_price, self._topology.inside_price)
            self._known[key] = sum(self._sizes[layer] * prices[layer in near] for layer in lacking)
        return self._known[key]

    def most_received(self, nodes: Sequence[int]) -> int:
        """The least load of the busiest receiver of a mapping."""
        return max(self.received(node, stage) for stage, node in enumerate(nodes))

    def neighbours(self, way: Way) -> Iterator[tuple[int, ...]]:
        """The mappings in which a busiest node, or one that it sends to, has exchanged its stage with another node."""
        busy = way.busiest
        touched = busy.union(move.target for move in way.sending.transfers if move.source in busy)
        stage_of = {node: stage for stage, node in enumerate(way.nodes)}
        idle = {self.kind(node): node for node in sorted(self._held, reverse=True) if node not in stage_of}
        for node in sorted(touched & stage_of.keys()):
            others = {(self.kind(other), self.stages[stage_of[other]]): other for other in reversed(way.nodes)}
            for other in (*others.values(), *idle.values()):
                changed = list(way.nodes)
                changed[stage_of[node]] = other
                if other in stage_of:
                    changed[stage_of[other]] = node
                moved = [stage_of[node], *([stage_of[other]] if other in stage_of else [])]
                if other != node and all(self.received(changed[stage], stage) < way.load for stage in moved):
                    yield tuple(changed)


def exchanged(ways: Sequence[Way], places: Places, way_of: Callable[[tuple[int, ...], int], Way], bound: int) -> Way:
    """The quickest way after exchanges that help, begun at each of these, the quickest first.

    `way_of` chooses senders for nodes and the least load that they allow.
    """
    best, work = min(ways, key=lambda way: way.load), _WORK
    for start in sorted(ways, key=lambda way: way.load):
        way: Way | None = start
        while way is not None and best.load > bound and work > 0:
            way, work = _better(way, places, way_of, work)
            best = best if way is None else min(best, way, key=lambda way: way.load)
    return best


def _better(
    way: Way, places: Places, way_of: Callable[[tuple[int, ...], int], Way], work: int
) -> tuple[Way | None, int]:
    """The first neighbour whose busiest nodes are less busy or fewer, None where there is none; the work left."""
    for nodes in places.neighbours(way):
        work -= len(nodes) + len(way.sending.needs)
        other = way_of(nodes, places.most_received(nodes))
        if other.badness < way.badness:
            return other, work
        if work < 0:
            break
    return None, work
