"""What the nodes of one problem hold and can be sent, and what stages on them cost at prices (README, proof 7)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solvers.ir.replan import ReplanProblem
from solvers.replan.exact.bounds import IntArray
from solvers.replan.transfer.owners import Interval
from solvers.replan.transfer.senders import sums

NEVER = 2**60
"""The price of what no node may take over."""
_CELLS = 2**22
"""Kinds of nodes times stages at most: with more nothing is priced."""

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

    def __init__(self, problem: ReplanProblem, held: Mapping[Interval, int], sizes: Sequence[int]) -> None:
        self.problem, self.sizes = problem, np.array(sizes, dtype=np.int64)
        self.runs, self.counts = tuple(held), np.array(list(held.values()), dtype=np.int64)
        self.layers = problem.layers
        self._shared, self._missing = dict[int, tuple[IntArray, IntArray]](), dict[int, IntArray]()
        self._owners = dict[int, Owners]()

    @property
    def small_enough(self) -> bool:
        """Whether tables of all stages for each kind can be held."""
        return len(self.runs) * (self.layers + 1) ** 2 <= _CELLS

    def _stages(self, widest: int) -> tuple[IntArray, IntArray]:
        """First layer and end of every stage of at most `widest` layers, [layers behind, own]."""
        behind, own = np.indices((self.layers + 1, widest + 1))
        return np.maximum(self.layers - behind - own, 0), self.layers - behind

    def _lacking(self, values: IntArray, widest: int) -> IntArray:
        """The sum of the values of the layers that a kind lacks for a stage, [kind, layers behind, own]."""
        sums = np.concatenate([[0], np.cumsum(values)])
        start, end = self._stages(widest)
        if widest not in self._shared:
            runs = np.array(self.runs, dtype=np.int64).reshape(-1, 2)
            first = np.maximum(runs[:, :1, None], start)
            self._shared[widest] = first, np.maximum(np.minimum(runs[:, 1:, None], end), first)
        first, last = self._shared[widest]
        return np.asarray((sums[end] - sums[start]) - (sums[last] - sums[first]))

    def missing(self, widest: int) -> IntArray:
        """Bytes that a node of each kind would receive, [kind, layers behind, own]."""
        if widest not in self._missing:
            self._missing[widest] = self._lacking(self.sizes, widest)
        return self._missing[widest]

    def stage_prices(self, nodes: IntArray, sent: IntArray, load: int, widest: int) -> IntArray:
        """The cheapest node for a stage, with what it lacks, [layers behind, own]."""
        prices = np.where(self.missing(widest) <= load, nodes[:, None, None] + self._lacking(sent, widest), NEVER).min(
            axis=0
        )
        behind, own = np.indices(prices.shape)
        return np.where((own >= 1) & (behind + own <= self.layers), prices, NEVER)

    def loads(self, most: int) -> list[int]:
        """The loads up to this one that the busiest node may have, rising: what a stage lacks, or layers of one run."""
        found = self._lacked()
        for some in {frozenset(self.sizes[first:end].tolist()) for first, end in self.runs}:
            found |= sums(sorted(some), most)
        return sorted(load for load in found if 0 <= load <= most)

    def _lacked(self) -> set[int]:
        """All that nodes may lack for a stage, in bytes: so many layers, the first or the last among them or not."""
        sizes, layers = self.sizes, self.layers
        if layers < 3 or len(inner := set(sizes[1:-1].tolist())) > 1:
            return {0, *np.unique(self.missing(layers)).tolist()}
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

    def patterns(self, kind: int, load: int) -> list[Pattern]:
        """What one node of a kind can send: of each different size of its layers how many, as many as can be."""
        first, end = self.runs[kind]
        sizes = sorted({int(size) for size in self.sizes[first:end] if size}, reverse=True)
        if not sizes:
            return []
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
        loose, sizes = 2 * kinds + self.layers, dict[tuple[int, int], int]()
        brought, patterns, sent = list[int](), dict[int, tuple[int, Pattern]](), dict[int, tuple[int, int]]()
        column = 0
        for kind, (first, end) in enumerate(self.runs):
            brought.append(column)
            entries += [(kind, column, 1.0), (loose, column, -1.0)]
            column += 1
            for pattern in self.patterns(kind, load):
                if some := [(size, many) for size, many in pattern if many]:
                    patterns[column] = kind, pattern
                    entries.append((kinds + self.layers + kind, column, 1.0))
                    for size, many in some:
                        entries.append((sizes.setdefault((kind, size), loose + 1 + len(sizes)), column, -float(many)))
                    column += 1
            for layer in range(first, end):
                if size := int(self.sizes[layer]):
                    sent[column] = kind, layer
                    row = sizes.setdefault((kind, size), loose + 1 + len(sizes))
                    entries += [(kinds + layer, column, -1.0), (row, column, 1.0)]
                    column += 1
        rows, columns, values = zip(*entries, strict=True)
        most = np.zeros(loose + 1 + len(sizes))
        most[:kinds] = most[kinds + self.layers : loose] = self.counts
        return Owners(np.array(rows), np.array(columns), np.array(values), most, tuple(brought), patterns, sent)

    def worth(self, nodes: IntArray, sent: IntArray, load: int) -> int:
        """What all nodes and all that they can send are worth together, at least."""
        total = int((self.counts * nodes).sum())
        for kind, ((first, end), count) in enumerate(zip(self.runs, self.counts.tolist(), strict=True)):
            dearest = Counter[int]()
            for size, price in zip(self.sizes[first:end].tolist(), sent[first:end].tolist(), strict=True):
                dearest[size] = max(dearest[size], price)
            if any(dearest.values()):
                worths = (sum(dearest[size] * many for size, many in some) for some in self.patterns(kind, load))
                total += count * max(worths, default=0)
        return total
