"""Other senders for the busiest nodes, one transfer at a time, where links differ (two bandwidths).

With one rate `senders.py` is exact. With two, an owner on the receiver's host sends at a lower price, to both, than
one elsewhere, and taking the near ones first may keep them busy longest. So each busiest node is relieved: one transfer
that it sends or receives gets another sender, who may first have to hand one of its own on, and so forth (an augmenting
path, of at most 16 hands). No step makes any node as busy as the busiest was.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property

from solvers.replan.transfer.owners import Interval
from solvers.replan.transfer.topology import Topology

Need = tuple[int, int]
"""A node and a layer that it lacks."""

_HANDS = 16
"""The longest chain of owners that hand transfers on to each other; each is one recursive call."""


_MOVES = 2_000
"""Other senders tried for a transfer before the busiest nodes are left as they are: about 0.1 s at 2,000 nodes."""


class Relief:
    """Who sends what, and how busy that keeps both ends; layers without size are left out."""

    def __init__(
        self,
        sources: Mapping[Need, int],
        kinds: Mapping[Interval, Sequence[int]],
        sizes: Sequence[int],
        topology: Topology,
    ) -> None:
        self._kinds, self._sizes, self._topology = kinds, sizes, topology
        self.sources = {need: source for need, source in sources.items() if sizes[need[1]]}
        self._moves = _MOVES
        self.sent: dict[int, int] = defaultdict(int)
        self.received: dict[int, int] = defaultdict(int)
        per_host, prices = topology.nodes_per_host, (topology.outside_price, topology.inside_price)
        for (target, layer), source in self.sources.items():
            load = sizes[layer] * prices[target // per_host == source // per_host]
            self.sent[source] += load
            self.received[target] += load

    @cached_property
    def _ends(self) -> dict[int, dict[Need, None]]:
        """What each node sends or receives."""
        ends: dict[int, dict[Need, None]] = defaultdict(dict)
        for need, source in self.sources.items():
            ends[source][need] = ends[need[0]][need] = None
        return ends

    @property
    def busiest(self) -> int:
        """The load of the node that sends or receives most."""
        return max((0, *self.sent.values(), *self.received.values()))

    def run(self, enough: int) -> None:
        """Relieve the busiest nodes until one cannot be relieved, or no load is above the limit."""
        while (limit := self.busiest) > enough:
            senders = [node for node, load in self.sent.items() if load == limit]
            receivers = [node for node, load in self.received.items() if load == limit]
            if not all(self._relieve(node, self.sent, limit) for node in senders):
                return
            if not all(self._relieve(node, self.received, limit) for node in receivers):
                return

    def _relieve(self, node: int, loads: Mapping[int, int], limit: int) -> bool:
        """One transfer of a node that is at the limit goes another way, unless that has happened already."""
        if loads[node] < limit:
            return True
        sends = loads is self.sent
        seen = {node} if sends else set()
        ends = [need for need in self._ends[node] if (self.sources[need] == node) == sends]
        return any(self._move(need, limit, seen, _HANDS) for need in ends)

    def _move(self, need: Need, limit: int, seen: set[int], hands: int) -> bool:
        """Another owner sends this, and neither end is at the limit then; each owner is tried once."""
        self._moves -= 1
        if self._moves < 0:
            return False
        target, source = need[0], self.sources[need]
        for owner in self._owners(need, seen):
            seen.add(owner)
            more = self._price(need, owner)
            less = self.received[target] - self._price(need, source)
            if less + more >= limit or not self._room(owner, limit - more, limit, seen, hands - 1):
                continue
            if self.sources[need] == source and self.received[target] - self._price(need, source) + more < limit:
                self._book(need, source, -1)
                self._book(need, owner, 1)
                return True
        return False

    def _room(self, owner: int, below: int, limit: int, seen: set[int], hands: int) -> bool:
        """Whether an owner sends less than `below`, if need be after handing one transfer on."""
        if self.sent[owner] < below or not hands:
            return self.sent[owner] < below
        sends = [need for need in self._ends[owner] if self.sources[need] == owner]
        enough = [need for need in sends if self.sent[owner] - self._price(need, owner) < below]
        return any(self._move(need, limit, seen, hands) for need in enough)

    def _owners(self, need: Need, seen: set[int]) -> list[int]:
        """Other owners that may send it, those on the receiver's host first, then the least busy."""
        target, layer = need
        holders = [node for run, nodes in self._kinds.items() if run[0] <= layer < run[1] for node in nodes]
        others = [node for node in holders if node != self.sources[need] and node not in seen]
        return sorted(others, key=lambda node: (self._topology.price(node, target), self.sent[node], node))

    def _price(self, need: Need, owner: int) -> int:
        return self._sizes[need[1]] * self._topology.price(owner, need[0])

    def _book(self, need: Need, source: int, times: int) -> None:
        """Enter a transfer, or (−1) take it out."""
        load = times * self._price(need, source)
        self.sent[source] += load
        self.received[need[0]] += load
        if times > 0:
            self.sources[need] = source
        for node in (source, need[0]):
            if times > 0:
                self._ends[node][need] = None
            else:
                self._ends[node].pop(need, None)
