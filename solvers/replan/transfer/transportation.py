"""The cheapest way to serve demands from supplies (Kuhn and Munkres' method), for kinds of many alike.

Nodes that hold the same layers are interchangeable, and so are stages that need the same: assigning 10,000 nodes to
10,000 stages is a transportation problem between some 50 kinds of each. Small ones are handed to scipy's
`linear_sum_assignment` one by one; large ones are solved between kinds by the same shortest augmenting paths, which
move as many alike at a time as they can (2,047 nodes: 0.6 ms instead of 270 ms). Both are exact, and equal in cost.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from solvers.native import extension

Costs = NDArray[np.float64]
"""Cost of one unit from each supply (row) to each demand (column): integers below 2^53, or inf where forbidden."""
Counts = NDArray[np.int64]

NATIVE = extension("solvers.replan.exact._filling")
"""Does what `_Paths` does, number for number, many times as fast."""

_ONE_BY_ONE = 256
"""Up to this many units scipy's compiled method is quicker, however few of them are alike."""


def transport(cost: Costs, supply: Counts, demand: Counts) -> Counts | None:
    """Units from each supply to each demand that meet all demands at the least cost; None where that is impossible.

    Supplies may be left over. Deterministic: equal inputs give equal flows.
    """
    surplus = int(supply.sum() - demand.sum())
    if surplus < 0:
        return None
    if surplus:
        cost = np.hstack([cost, np.zeros((len(supply), 1))])
        demand = np.append(demand, surplus)
    if supply.sum() <= _ONE_BY_ONE:
        flow = _one_by_one(cost, supply, demand)
    elif NATIVE is None:
        flow = _Paths(cost, supply, demand).solve()
    else:
        flow = NATIVE.transported(cost, supply, demand)
    return flow if flow is None or not surplus else flow[:, :-1]


def _one_by_one(cost: Costs, supply: Counts, demand: Counts) -> Counts | None:
    rows = np.repeat(np.arange(len(supply)), supply)
    columns = np.repeat(np.arange(len(demand)), demand)
    try:
        chosen, taken = linear_sum_assignment(cost[np.ix_(rows, columns)])
    except ValueError:  # scipy's word for: every assignment uses a forbidden pair
        return None
    flow = np.zeros(cost.shape, dtype=np.int64)
    np.add.at(flow, (rows[chosen], columns[taken]), 1)
    return flow


class _Paths:
    """Shortest augmenting paths with prices: reduced costs stay ≥ 0, and are 0 wherever something flows."""

    def __init__(self, cost: Costs, supply: Counts, demand: Counts) -> None:
        self.cost, self.supply, self.demand = cost, supply.copy(), demand.copy()
        self.flow = np.zeros(cost.shape, dtype=np.int64)
        self.row_price = np.zeros(len(supply))
        self.column_price = cost.min(axis=0)

    def solve(self) -> Counts | None:
        if not np.isfinite(self.column_price).all():
            return None
        self._start()
        while self.supply.any():
            if not self._augment():
                return None
        return self.flow

    def _start(self) -> None:
        """Everything that can go at reduced cost 0 without moving what went before."""
        for row, column in np.argwhere(self.cost == self.column_price):
            amount = min(self.supply[row], self.demand[column])
            self._move(row, column, amount)
            self.supply[row] -= amount
            self.demand[column] -= amount

    def _augment(self) -> bool:
        """One shortest path from any supply left to any demand left; False where none is reached."""
        sources = np.flatnonzero(self.supply)
        row_from = np.full(len(self.supply), -1)
        row_distance = np.full(len(self.supply), np.inf)
        row_distance[sources] = 0
        distance = np.full(len(self.demand), np.inf)
        column_from = np.zeros(len(self.demand), dtype=np.int64)
        done = np.zeros(len(self.demand), dtype=bool)
        self._relax(sources, 0.0, done, distance, column_from)
        while True:
            near = np.where(done, np.inf, distance)
            least = near.min()
            if least == np.inf:
                return False
            ends = np.flatnonzero((near == least) & (self.demand > 0))
            if ends.size:
                break
            column = int(near.argmin())
            done[column] = True
            rows = np.flatnonzero((self.flow[:, column] > 0) & np.isinf(row_distance))
            row_distance[rows] = least
            row_from[rows] = column
            self._relax(rows, least, done, distance, column_from)
        reached = np.isfinite(row_distance)
        self.row_price[reached] += least - row_distance[reached]
        self.column_price[done] -= least - distance[done]
        self._push(int(ends[0]), column_from, row_from)
        return True

    def _relax(self, rows: Counts, base: float, done: NDArray[np.bool_], distance: Costs, origin: Counts) -> None:
        if rows.size:
            reach = base + self.cost[rows] - self.row_price[rows, None] - self.column_price
            best = reach.argmin(axis=0)
            shortest = reach[best, np.arange(reach.shape[1])]
            better = ~done & (shortest < distance)
            distance[better] = shortest[better]
            origin[better] = rows[best[better]]

    def _push(self, end: int, column_from: Counts, row_from: Counts) -> None:
        """Moves along the path to `end` what its supply, its demand and the flows that it turns back allow."""
        steps, column = [], end
        while True:
            row = int(column_from[column])
            steps.append((row, column))
            if row_from[row] < 0:
                break
            column = int(row_from[row])
        turned = [int(self.flow[row, int(row_from[row])]) for row, _ in steps[:-1]]
        amount = min(int(self.supply[row]), int(self.demand[end]), *turned)
        for row, column in steps:
            self._move(row, column, amount)
            if row_from[row] >= 0:
                self._move(row, int(row_from[row]), -amount)
        self.supply[row] -= amount
        self.demand[end] -= amount

    def _move(self, row: int, column: int, amount: int) -> None:
        self.flow[row, column] += amount
