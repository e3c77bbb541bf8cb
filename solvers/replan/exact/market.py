"""What the nodes of one problem hold and can be sent, and what stages on them cost at prices (README, proof 7)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt

from solvers.ir.replan import ReplanProblem
from solvers.replan.exact.bounds import FILLING, IntArray
from solvers.replan.transfer.mapping import NodeKind
from solvers.replan.transfer.owners import Interval
from solvers.replan.transfer.senders import sums, whole_layers
from solvers.replan.transfer.topology import Topology

NEVER = 2**60
"""The price of what no node may take over."""
_CELLS = 2**22
"""Kinds of nodes times stages at most: with more nothing is priced."""
_PATTERNS = 64
"""What one owner can send is listed up to so many ways; with more it is what adds up to no more."""

Pattern = tuple[tuple[int, int], ...]
"""Bytes of a layer, and how many of that size."""


@dataclass(frozen=True)
class Owners:
    """What owners may send within a load, as entries of a linear program whose rows `Market.owners` names.

    `brought`: columns of nodes that bring nothing; `patterns` and `sent`: by column the kind, and what it sends.
    """

    rows: IntArray
    columns: IntArray
    values: npt.NDArray[np.float64]
    most: npt.NDArray[np.float64]
    brought: tuple[int, ...]
    patterns: Mapping[int, tuple[int, Pattern]]
    sent: Mapping[int, tuple[int, int]]

    @property
    def width(self) -> int:
        """Its columns."""
        return len(self.brought) + len(self.patterns) + len(self.sent)


class Market:
    """The nodes of one problem, by what they hold, and what whoever lacks a layer can be sent."""

    def __init__(
        self,
        problem: ReplanProblem,
        kinds: Sequence[NodeKind],
        sizes: Sequence[int],
        topology: Topology,
        *,
        by_host: bool = False,
    ) -> None:
        self._made_of = (problem, kinds, sizes, topology)
        self.problem, self.sizes = problem, np.array(sizes, dtype=np.int64)
        self.runs = tuple(kind.held for kind in kinds)
        self.counts = np.array([len(kind.nodes) for kind in kinds], dtype=np.int64)
        self.layers = problem.layers
        self.links = [topology.outside_price]
        if topology.nodes_per_host > 1:
            self.links.append(topology.inside_price)
        self.near = np.zeros((len(kinds), self.layers), dtype=np.bool_)
        """Which layers nodes of a kind lack that their hosts hold."""
        self.copy = np.tile(np.arange(self.layers), (len(kinds), 1))
        """Which copy nodes of a kind get of a layer: its number from any host, or one behind these from their own."""
        self.inside = dict[tuple[int, int], int]()
        """The copies sent within hosts, by kind of hosts (0 where these are not told apart) and layer."""
        names = {near: number for number, near in enumerate(dict.fromkeys(kind.nearby for kind in kinds))}
        self.hosts = [names[kind.nearby] if by_host else 0 for kind in kinds]
        for row, kind in enumerate(kinds):
            for layer in kind.nearby - set(range(*kind.held)):
                self.near[row, layer] = True
                copies = self.layers + len(self.inside)
                self.copy[row, layer] = self.inside.setdefault((self.hosts[row], layer), copies)
        inside = [self.sizes[layer] * self.links[-1] for _, layer in self.inside]
        self.weights = np.array([*self.sizes * self.links[0], *inside], dtype=np.int64)
        """Loads of the copies."""
        self.owned = Counter[tuple[Interval, int]]()
        for run, host, count in zip(self.runs, self.hosts, self.counts.tolist(), strict=True):
            self.owned[run, host] += count
        self._patterns = dict[tuple[frozenset[int], int], list[Pattern] | None]()
        self._owners, self._wholes = dict[int, Owners](), dict[tuple[frozenset[int], int], int]()

    def small_enough(self, widest: int | None = None) -> bool:
        """Whether tables of all stages for each kind can be held, on hosts of those of at most `widest` layers."""
        most = self.layers if len(self.links) == 1 or widest is None else widest
        few = 1 if len(self.links) > 1 and widest is None else most + 1  # how wide stages are is not known yet
        return len(self.runs) * (self.layers + 1) * few <= _CELLS

    @cached_property
    def by_host(self) -> "Market":
        """The same in which copies that a host could send come from hosts of its kind only: closer, but no bound."""
        problem, kinds, sizes, topology = self._made_of
        return Market(problem, kinds, sizes, topology, by_host=True) if topology.nodes_per_host > 1 else self

    @cached_property
    def at_one_rate(self) -> "Market":
        """The same as if all links were as quick as those within hosts, loads in bytes: looser, and sooner solved."""
        problem, kinds, sizes, topology = self._made_of
        if topology.nodes_per_host == 1:
            return self
        nodes = dict[Interval, tuple[int, ...]]()
        for kind in kinds:
            nodes[kind.held] = (*nodes.get(kind.held, ()), *kind.nodes)
        alike = [NodeKind(held, frozenset(), some) for held, some in nodes.items()]
        return Market(problem, alike, sizes, Topology.flat(topology.inside_bytes_per_s))

    @property
    def copy_row(self) -> int:
        """The first row of copies: of each layer from another host, then of each from the same one."""
        return len(self.runs)

    @property
    def loose_row(self) -> int:
        """The row of nodes that bring nothing."""
        return self.copy_row + len(self.weights) + len(self.owned)

    def _lacking(self, before: IntArray, widest: int) -> IntArray:
        """The sum of the values of the layers that a kind lacks for a stage, [kind, layers behind, own]."""
        behind, own = np.indices((self.layers + 1, widest + 1))
        return np.asarray(before[:, self.layers - behind] - before[:, np.maximum(self.layers - behind - own, 0)])

    def before(self, values: IntArray) -> IntArray:
        """The sum of the values of the layers in front of each that a kind lacks, [kind, layer]."""
        found = np.zeros((len(self.runs), self.layers + 1), dtype=np.int64)
        each = found[:, 1:]
        each[:] = values[self.copy]
        each[self._own] = 0
        return np.cumsum(found, axis=1, out=found)

    @cached_property
    def lacked(self) -> IntArray:
        """The load of the layers in front of each that a kind lacks, [kind, layer]."""
        return self.before(self.weights)

    @cached_property
    def _own(self) -> npt.NDArray[np.bool_]:
        """Which layers a kind holds."""
        runs, layer = np.array(self.runs, dtype=np.int64).reshape(-1, 2), np.arange(self.layers)
        return np.asarray((runs[:, :1] <= layer) & (layer < runs[:, 1:]))

    def stage_prices(self, nodes: IntArray, sent: IntArray, load: int, widest: int) -> IntArray:
        """The cheapest node for a stage, with what it lacks, [layers behind, own]."""
        if FILLING is not None:
            return np.asarray(FILLING.stage_prices(nodes, self.before(sent), self.lacked, widest, load))
        may, costs = self._lacking(self.lacked, widest) <= load, self._lacking(self.before(sent), widest)
        prices = np.where(may, nodes[:, None, None] + costs, NEVER).min(axis=0)
        behind, own = np.indices(prices.shape)
        return np.where((own >= 1) & (behind + own <= self.layers), prices, NEVER)

    def loads(self, most: int) -> list[int]:
        """The loads up to this one that the busiest node may have, rising: what a stage lacks, or layers of one run."""
        found = self._lacked() if len(self.links) == 1 else self._lacked_on_hosts(most)
        for some in {frozenset(self.sizes[first:end].tolist()) for first, end in self.runs}:
            found |= sums(sorted({size * link for size in some for link in self.links}), most)
        return sorted(load for load in found if 0 <= load <= most)

    def _lacked(self) -> set[int]:
        """All that nodes may lack for a stage, in bytes: so many layers, the first or the last among them or not."""
        sizes, layers = self.sizes, self.layers
        if layers < 3 or len(inner := set(sizes[1:-1].tolist())) > 1:
            return {0, *np.unique(self._lacking(self.lacked, layers)).tolist()}
        start, end = (np.arange(layers + 1, dtype=np.int16)[index] for index in np.triu_indices(layers + 1, 1))
        seen = np.zeros(4 * (layers + 1), dtype=np.bool_)
        for first, last in set(self.runs):
            lacks = end - start - (np.minimum(end, last) - np.maximum(start, first)).clip(min=0)
            begin = (start == 0) & (first > 0 or last == 0)
            seen[4 * lacks + 2 * begin + ((end == layers) & (last < layers))] = True
        (each,) = inner
        ends = np.array([0, int(sizes[-1]) - each, int(sizes[0]) - each, int(sizes[0] + sizes[-1]) - 2 * each])
        codes = np.flatnonzero(seen)
        return {0, *(codes // 4 * each + ends[codes % 4]).tolist()}

    def _lacked_on_hosts(self, most: int) -> set[int]:
        """The same where hosts matter, and more: any number of inner layers, the first and the last, each way."""
        inner = {int(size) * link for size in self.sizes[1:-1] if size for link in self.links}
        found = sums(sorted(inner), most)
        for size in {0: self.sizes[0], self.layers - 1: self.sizes[-1]}.values():
            found |= {load + int(size) * link for link in self.links for load in found}
        return found

    def patterns(self, run: Interval, load: int) -> list[Pattern] | None:
        """What one node that holds this can send: of each different load of a copy how many, as many as can be.

        None where these are too many: any that add up to what whole copies can.
        """
        some = frozenset(self.sizes[slice(*run)].tolist()) - {0}
        if (some, load) not in self._patterns:
            self._patterns[some, load] = self._sent(some, load)
        return self._patterns[some, load]

    def _sent(self, some: frozenset[int], load: int) -> list[Pattern] | None:
        sizes = sorted({size * link for size in some for link in self.links}, reverse=True)
        if not sizes:
            return []
        if len(self.links) > 1 and prod(load // size + 1 for size in sizes[:-1]) > _PATTERNS:
            return None
        found = list[tuple[Pattern, int]]([((), load)])
        for size in sizes[:-1]:
            found = [
                ((*counts, (size, count)), left - size * count)
                for counts, left in found
                for count in range(left // size + 1)
            ]
        return [(*counts, (sizes[-1], left // sizes[-1])) for counts, left in found]

    def owners(self, load: int) -> Owners:
        """Rows: nodes of each kind, layers sent, owners of each kind, nodes that bring nothing, sizes of each kind."""
        if load not in self._owners:
            self._owners[load] = self._owning(load)
        return self._owners[load]

    def _owning(self, load: int) -> Owners:
        kinds, entries = len(self.runs), list[tuple[int, int, float]]()
        loose, sizes = self.loose_row, dict[tuple[int, int], int]()
        brought, patterns, sent = list[int](), dict[int, tuple[int, Pattern]](), dict[int, tuple[int, int]]()
        most = [*self.counts.tolist(), *[0] * len(self.weights), *self.owned.values(), 0]
        column = 0
        for kind in range(kinds):
            brought.append(column)
            entries += [(kind, column, 1.0), (loose, column, -1.0)]
            column += 1
        for owner, (run, host) in enumerate(self.owned):
            of, found = self.copy_row + len(self.weights) + owner, self.patterns(run, load)
            for pattern in found or ():
                if some := [(size, many) for size, many in pattern if many]:
                    patterns[column] = owner, pattern
                    entries.append((of, column, 1.0))
                    for size, many in some:
                        entries.append((sizes.setdefault((owner, size), loose + 1 + len(sizes)), column, -float(many)))
                    column += 1
            whole = self._whole(run, load) if found is None else 0
            for layer in range(*run):
                for copy in self._copies(host, layer):
                    if weight := int(self.weights[copy]):
                        sent[column] = owner, copy
                        entries.append((self.copy_row + copy, column, -1.0))
                        if found is not None:
                            entries.append((sizes.setdefault((owner, weight), loose + 1 + len(sizes)), column, 1.0))
                        elif weight <= load:
                            entries.append((of, column, weight / whole))
                        else:
                            entries.append((of, column, float(self.counts.sum() + 1)))
                        column += 1
        rows, columns, values = zip(*entries, strict=True)
        return Owners(
            np.array(rows),
            np.array(columns),
            np.array(values),
            np.array([*most, *[0] * len(sizes)], dtype=np.float64),
            tuple(brought),
            patterns,
            sent,
        )

    def _copies(self, host: int, layer: int) -> list[int]:
        """The copies of a layer that nodes on these hosts can send."""
        near = self.inside.get((host, layer))
        return [layer] if near is None else [layer, near]

    def _whole(self, run: Interval, load: int) -> int:
        """The most up to a load that whole copies of layers of a run add up to."""
        some = frozenset(self.sizes[slice(*run)].tolist())
        if (some, load) not in self._wholes:
            self._wholes[some, load] = whole_layers([size * link for size in some for link in self.links], load)
        return self._wholes[some, load]

    def worth(self, nodes: IntArray, sent: IntArray, load: int) -> int:
        """What all nodes and all that they can send are worth together, at least."""
        total = int((self.counts * nodes).sum())
        for (run, host), count in self.owned.items():
            dearest = Counter[int]()
            for layer in range(*run):
                for copy in self._copies(host, layer):
                    weight, price = int(self.weights[copy]), int(sent[copy])
                    dearest[weight] = max(dearest[weight], price)
            if any(dearest.values()):
                found = self.patterns(run, load)
                if found is None:
                    whole = self._whole(run, load)
                    worths = [-(-price * whole // weight) for weight, price in dearest.items() if 0 < weight <= load]
                else:
                    worths = [sum(dearest[weight] * many for weight, many in some) for some in found]
                total += count * max(worths, default=0)
        return total
