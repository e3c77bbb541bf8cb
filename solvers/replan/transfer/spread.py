"""Nodes exchange stages until no node is busier than a load that is known to suffice in fractions (two bandwidths).

A mapping says what nodes of each kind take, not which of them stand together: several nodes of one host may lack what
one neighbour holds, while that of another host sends nothing. So whatever makes a node too busy goes elsewhere: its
receiver exchanges its stage with another node, or hands it to an idle one, both choose their senders anew, and that is
kept if it lessens the sum of what is too much.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from solvers.replan.transfer.owners import Interval
from solvers.replan.transfer.topology import Topology

TRIES = 2_500
"""Exchanges looked at, each some 60 us."""
_LAYERS = 3
"""So many layers that a node lacks take as long as one more."""

Sources = dict[int, tuple[int, int]]
"""By layer: who sends it, and its load."""


class Spread:
    """Stages of nodes and who sends them what they lack; `limit` is a load that is not too much."""

    def __init__(
        self,
        stages: Sequence[Interval],
        nodes: Sequence[int],
        sources: Mapping[tuple[int, int], int],
        held: Mapping[int, Interval],
        sizes: Sequence[int],
        topology: Topology,
        limit: int,
    ) -> None:
        self._stages, self._held, self._sizes, self._limit = stages, held, sizes, limit
        self._inside, self._outside = topology.inside_price, topology.outside_price
        self.stage_of = dict[int, int | None](dict.fromkeys(held))
        self.stage_of |= {node: number for number, node in enumerate(nodes)}
        self._host = {node: topology.host(node) for node in held}
        self._near = defaultdict[tuple[int, int], list[int]](list)
        self._owners = defaultdict[int, list[int]](list)
        for node, run in held.items():
            for layer in range(*run):
                self._near[self._host[node], layer].append(node)
                self._owners[layer].append(node)
        self._known = dict[tuple[int, Interval, Interval], int]()
        self.busy = defaultdict[tuple[int, bool], int](int)
        self.sources = defaultdict[int, Sources](dict)
        self._sends = defaultdict[int, dict[tuple[int, int], None]](dict)
        self.tries = TRIES
        for (node, layer), source in sources.items():
            if sizes[layer]:
                price = self._inside if self._host[node] == self._host[source] else self._outside
                self._book(node, {layer: (source, sizes[layer] * price)}, 1)

    def run(self) -> bool:
        """Whether no node is too busy in the end."""
        while self.tries > 0:
            over = [key for key, load in self.busy.items() if load > self._limit]
            if not over:
                return True
            if not any([self._relieved(*key) for key in sorted(over, key=lambda key: -self.busy[key])]):
                return False
        return False

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes of the stages."""
        found = {number: node for node, number in self.stage_of.items() if number is not None}
        return tuple(found[number] for number in range(len(found)))

    @property
    def sending(self) -> dict[tuple[int, int], int]:
        """Who sends each node each layer that it lacks."""
        return {(node, layer): source for node, some in self.sources.items() for layer, (source, _) in some.items()}

    def loads(self, sends: bool) -> dict[int, int]:
        """What each node sends, or receives."""
        return {node: load for (node, way), load in self.busy.items() if way == sends and load}

    def _book(self, node: int, some: Sources, sign: int) -> None:
        for layer, (source, load) in some.items():
            self.busy[source, True] += sign * load
            self.busy[node, False] += sign * load
            if sign > 0:
                self.sources[node][layer] = source, load
                self._sends[source][node, layer] = None
            else:
                del self.sources[node][layer]
                del self._sends[source][node, layer]

    def _received(self, node: int, number: int | None) -> int:
        """What a node receives at least at a stage."""
        if number is None:
            return 0
        key = self._host[node], self._held[node], self._stages[number]
        if key not in self._known:
            first, end = key[1]
            self._known[key] = sum(
                self._sizes[layer] * (self._inside if (key[0], layer) in self._near else self._outside)
                for layer in range(*key[2])
                if not first <= layer < end
            )
        return self._known[key]

    def _over(self, keys: set[tuple[int, bool]]) -> int:
        return sum(max(0, self.busy[key] - self._limit) for key in keys)

    def _relieved(self, node: int, sends: bool) -> bool:
        """Whether what makes this node too busy was lessened."""
        if self.busy[node, sends] <= self._limit:
            return True
        targets = list(dict.fromkeys(target for target, _ in self._sends[node])) if sends else [node]
        for target in targets:
            if self._elsewhere(target, target):
                return True
        for target in targets:
            for other in self._others(target):
                self.tries -= 1
                if self.tries < 0:
                    return False
                if self._elsewhere(target, other):
                    return True
        return False

    def _others(self, node: int) -> Iterator[int]:
        """Nodes with which it may exchange stages, those that hold the same first."""
        number, held = self.stage_of[node], self._held[node]
        for alike in (True, False):
            for other, run in self._held.items():
                if (run == held) != alike or other == node:
                    continue
                theirs = self.stage_of[other]
                same = theirs is not None and number is not None and self._stages[theirs] == self._stages[number]
                if same and (alike or self._host[other] == self._host[node]):
                    continue
                if self._received(node, theirs) <= self._limit and self._received(other, number) <= self._limit:
                    yield other

    def _elsewhere(self, node: int, other: int) -> bool:
        """Whether it helps to exchange the stages of two nodes (of one: to choose its senders anew)."""
        before = {one: dict(self.sources[one]) for one in (node, other)}
        keys = {(source, True) for some in before.values() for source, _ in some.values()}
        keys |= {(node, False), (other, False)}
        stages = self.stage_of[node], self.stage_of[other]
        was = self._over(keys)
        for one, some in before.items():
            self._book(one, some, -1)
        self.stage_of[node], self.stage_of[other] = stages[1], stages[0]
        now, after = self._over(keys), dict[int, Sources]()
        for one in before:
            after[one] = self._chosen(one)
            self.tries -= len(after[one]) // _LAYERS
            fresh = {(source, True) for source, _ in after[one].values()} - keys
            now += self._over(fresh)
            was += self._over(fresh)
            keys |= fresh
            self._book(one, after[one], 1)
        if self._over(keys) < was:
            return True
        for one, some in after.items():
            self._book(one, some, -1)
        self.stage_of[node], self.stage_of[other] = stages
        for one, some in before.items():
            self._book(one, some, 1)
        return False

    def _chosen(self, node: int) -> Sources:
        """Who sends a node what it lacks: its neighbours as long as they are not too busy, else others."""
        number, found = self.stage_of[node], Sources()
        if number is None:
            return found
        (first, end), sent, room = self._held[node], dict[int, int](), self._limit - self._received(node, number)
        for layer in range(*self._stages[number]):
            if first <= layer < end or not self._sizes[layer]:
                continue
            near, far = self._sizes[layer] * self._inside, self._sizes[layer] * self._outside
            best: tuple[int, int] | None = None
            if owners := self._near.get((self._host[node], layer)):
                owner = min(owners, key=lambda one: self.busy[one, True] + sent.get(one, 0))
                if self.busy[owner, True] + sent.get(owner, 0) + near <= self._limit or room < far - near:
                    best = owner, near
            if best is None:
                owner = min(self._owners[layer], key=lambda one: self.busy[one, True] + sent.get(one, 0))
                if owners and self.busy[owner, True] + sent.get(owner, 0) + far > self._limit:
                    best = min(owners, key=lambda one: self.busy[one, True] + sent.get(one, 0)), near
                elif self._host[owner] == self._host[node]:
                    best = owner, near
                else:
                    best = owner, far
                    room -= far - near if owners else 0
            found[layer] = best
            sent[best[0]] = sent.get(best[0], 0) + best[1]
        return found
