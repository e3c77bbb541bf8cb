"""The linear program behind prices: fractions of pipelines that keep to the nodes and to a load (README, proof 7)."""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from solvers.engines import glop
from solvers.engines.model import FloatArray
from solvers.replan.estimate.objective import Split
from solvers.replan.exact.bounds import IntArray
from solvers.replan.exact.market import Market
from solvers.replan.progress import Effort

UNIT = 2**24
"""Prices are counted in this part of a microbatch."""
_ROW_US, _ENTRIES_A_US = 16, 4
"""About what each row of a program takes, and how many of its entries a microsecond."""
_BEGIN_US, _CELLS_ON_HOSTS_A_US = 4_000, 60
"""About what each program takes where hosts matter, and how many of its rows times columns a microsecond."""


class Program:
    """Rows: those of `Market.owners`, and a node for each stage. Columns: pipelines, owners, nodes on stages.

    Owners begin at column `first_owner`, nodes at `first_node`.
    """

    def __init__(self, market: Market, load: int, shapes: Sequence[Split]) -> None:
        self.market, self.load, self.shapes = market, load, shapes
        own = np.fromiter(chain.from_iterable(layers for layers, _ in shapes), dtype=np.int64)
        depths = np.fromiter((len(layers) for layers, _ in shapes), dtype=np.int64, count=len(shapes))
        pipeline, wide = np.repeat(np.arange(len(shapes)), depths), market.layers + 1
        stops = np.cumsum(own) - pipeline * market.layers
        codes, stage = np.unique((stops - own) * wide + stops, return_inverse=True)
        start, stop = codes // wide, codes % wide
        self.stages = list(zip(start.tolist(), stop.tolist(), strict=True))
        """First layer and end of each stage of any pipeline, rising."""
        self.owners, self.first_owner = market.owners(load), len(shapes)
        self.first_node, self._first_stage = self.first_owner + self.owners.width, len(self.owners.most)
        parts = [
            (self._first_stage + stage, pipeline, np.ones(len(own))),
            (self.owners.rows, self.owners.columns + self.first_owner, self.owners.values),
            self._nodes(start[:, None], stop[:, None]),
        ]
        rows, columns, values = (np.concatenate(some) for some in zip(*parts, strict=True))
        self.upper = np.append(self.owners.most, np.zeros(len(self.stages)))
        self.worth = np.zeros(self.first_node + len(self.served))
        self.worth[: self.first_owner] = [count for _, count in shapes]
        self.matrix = csr_array((values, (rows, columns)), shape=(len(self.upper), len(self.worth)))

    @property
    def about_us(self) -> int:
        """About what solving it takes."""
        entries_us = int(self.matrix.nnz) // _ENTRIES_A_US
        if len(self.market.links) == 1:
            return _ROW_US * len(self.upper) + entries_us
        return _BEGIN_US + entries_us + len(self.upper) * len(self.worth) // _CELLS_ON_HOSTS_A_US

    def most(self) -> glop.Priced | None:
        """The most microbatches of fractions of pipelines."""
        return glop.most(self.worth, self.matrix, self.upper)

    def share(
        self, kinds: Sequence[int], numbers: Sequence[int], effort: Effort
    ) -> tuple[float, IntArray, IntArray] | None:
        """Which part of so many pipelines of each kind keeps to the load at most, and the prices; twice all at most.

        `kinds`: of each shape its kind, whose shapes may be mixed.
        """
        effort.spend(self.about_us * 2 // 3)
        rows, columns = self.matrix.shape
        some = [kind for kind, number in enumerate(numbers) if number]
        row_of = {kind: rows + row for row, kind in enumerate(some)}
        mixed = [(row_of[kind], shape) for shape, kind in enumerate(kinds) if kind in row_of]
        matrix = self.matrix.tocoo()
        values = np.concatenate([matrix.data, -np.ones(len(mixed)), [float(numbers[kind]) for kind in some]])
        at = [row for row, _ in mixed] + list(row_of.values()), [shape for _, shape in mixed] + [columns] * len(some)
        places = (np.concatenate([matrix.row, at[0]]), np.concatenate([matrix.col, at[1]]))
        wider = csr_array((values, places), shape=(rows + len(some), columns + 1))
        worth, limits = np.append(np.zeros(columns), 1.0), np.concatenate([self.upper, np.zeros(len(some))])
        found = glop.most(worth, wider, limits, np.append(np.full(columns, np.inf), 2.0))
        scale = UNIT * self.market.problem.microbatches
        return None if found is None else (found.most, *self.prices(found, scale))

    def prices(self, found: glop.Priced, scale: int = UNIT) -> tuple[IntArray, IntArray]:
        """The prices of nodes and of sent layers that a solution says, in whole numbers."""
        kinds, copies = len(self.market.runs), len(self.market.weights)
        prices = np.maximum(np.rint(found.prices * scale), 0).astype(np.int64)
        nodes, sent = prices[:kinds], prices[kinds : kinds + copies]
        sent[self.market.weights == 0] = 0
        return nodes, sent

    def _nodes(self, start: IntArray, stop: IntArray) -> tuple[IntArray, IntArray, FloatArray]:
        """Which nodes take which stages, and what these lack then: of each stage first those that bring nothing.

        Entries; `served` is the kind (−1: any that bring nothing) and the stage of each column.
        """
        market = self.market
        runs = np.array([(0, 0), *market.runs], dtype=np.int64)  # the first kind stands for all that bring nothing
        begin, last = np.maximum(runs[:, 0], start), np.minimum(runs[:, 1], stop)
        brings = begin < last
        begin, last = np.where(brings, begin, stop), np.where(brings, last, stop)
        number, kind = np.nonzero(self._useful(brings, start[:, 0], stop[:, 0]))
        self.served = np.column_stack([kind - 1, number])
        columns = self.first_node + np.arange(len(number))
        layer = start[number] + np.arange(int((stop - start).max(initial=0)))
        lacks = (layer < begin[number, kind][:, None]) | (layer >= last[number, kind][:, None])
        lacks &= layer < stop[number]
        lacks[lacks] &= market.sizes[layer[lacks]] > 0
        copies = layer
        if market.inside:
            copies = np.vstack([np.arange(market.layers), market.copy])[
                kind[:, None], layer.clip(max=market.layers - 1)
            ]
        lacking = np.nonzero(lacks)[0]
        rows = np.where(kind, kind - 1, market.loose_row), self._first_stage + number, market.copy_row + copies[lacks]
        ones = np.ones(len(number))
        return (
            np.concatenate(rows),
            np.concatenate([columns, columns, columns[lacking]]),
            np.concatenate([ones, -ones, np.ones(len(lacking))]),
        )

    def _useful(self, brings: npt.NDArray[np.bool_], start: IntArray, stop: IntArray) -> npt.NDArray[np.bool_]:
        """Which kinds may take which stages and bring something, they or their hosts, [stage, kind]; the first all."""
        market = self.market
        far = np.concatenate([[0], np.cumsum(market.weights[: market.layers])])
        before = np.vstack([far, market.lacked])
        if market.inside:
            near = np.zeros((len(market.runs) + 1, market.layers + 1), dtype=np.int64)
            np.cumsum(market.near, axis=1, out=near[1:, 1:])
            brings |= near[:, stop].T > near[:, start].T
        brings[:, 0] = True
        return np.asarray(brings & (self.load >= before[:, stop].T - before[:, start].T))
