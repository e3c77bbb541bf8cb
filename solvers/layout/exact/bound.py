"""A bound with a certificate: a small tree over sums of the decision, whose leaves carry duals (README, certificate).

The bound is not what a float engine says, but what the leaves' duals add up to in whole numbers; `bayplan check` adds
them up again. It is valid at any moment, since the leaves always cover all decisions.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from solvers.engines import Answer, LinearModel
from solvers.engines.duals import UNIT, whole_dual, whole_us
from solvers.engines.model import Basis, FloatArray
from solvers.ir.solution import Status
from solvers.layout.evaluate import Instance
from solvers.layout.exact.model import Relaxation, relaxation
from solvers.layout.exact.splits import Limits, Place, QueueSplits, Split, fractional

FORM = "layout-tree/1"
OF_BYTES = ("host", "memory", "peak", "held")
"""Families of rows in bytes; the linear programs state them in larger units."""
PATIENCE, QUEUE_PATIENCE = 12, 100
"""Splits without a better bound after which the tree is left; the certificate holds the last tree that was better.

With the queue's rows many parts have to be split before the weakest is better.
"""

Ints = npt.NDArray[np.object_]


Ask = Callable[[LinearModel, Basis | None], Answer]
"""Solves a linear program, beginning with a basis of a like one."""


@dataclass(frozen=True)
class Leaf:
    """A part of all decisions: limits by column, duals by row, and what they prove, in 1/UNIT µs."""

    limits: Limits
    duals: dict[str, int]
    bound: int

    @property
    def bound_us(self) -> int:
        """The least whole microsecond that a decision of this part can end at."""
        return whole_us(self.bound)


@dataclass(order=True)
class _Node:
    bound: int
    number: int
    leaf: Leaf
    split: Place | None
    basis: Basis | None


class BoundTree:
    """Splits the part of the weakest leaf until `bound_us` meets the end of the known decision, or nothing helps.

    All bounds are for decisions that end by `most_us`; `bound_us` is therefore never more than one beyond. `queue`:
    with rows (18)-(20), and splits where they say most; else sums are split.
    """

    def __init__(self, given: Instance, most_us: int, queue: bool = False) -> None:
        self.most_us, self.queue = most_us, queue
        queue_us = most_us if queue else None
        scaled = relaxation(given, queue_us=queue_us)
        self.whole, self.exact = scaled.whole, relaxation(given, byte=1.0, queue_us=queue_us).model
        self.split = self._splits(given, scaled)
        cost, upper = scaled.model.cost.copy(), scaled.model.upper.copy()
        cost[scaled.short], upper[scaled.short] = most_us, np.inf  # parts without a decision get duals that prove much
        self.model = replace(scaled.model, cost=cost, upper=upper, integer=np.zeros_like(scaled.model.integer))
        self.rows = [self.model.row_names[row] for row in range(self.model.rows)]
        self.fraction = np.array([scaled.byte if name.split("/")[0] in OF_BYTES else 1.0 for name in self.rows])
        self.values = _whole(self.exact.row_value)
        self.lower = _whole(self.exact.lower)
        self.upper = _whole(np.where(np.isinf(self.exact.upper), most_us, self.exact.upper))
        self.leaves: list[Leaf] = []
        self.bound_us = 0

    def _splits(self, given: Instance, scaled: Relaxation) -> Split:
        if self.queue:
            return QueueSplits(given, scaled, self.most_us)
        return lambda x, limits, end_us: fractional(scaled.whole, x)

    def run(self, ask: Ask, done: Callable[[], bool]) -> None:
        """Solve and split; `ask` solves a linear program from a basis, `done` says whether to stop."""
        root = self._node(ask, 0, {}, None)
        if root is None:
            return
        nodes, idle, number = [root], 0, 0
        patience = QUEUE_PATIENCE if self.queue else PATIENCE
        while True:
            idle += 1
            if nodes[0].leaf.bound_us > self.bound_us or not self.leaves:
                self.bound_us, self.leaves, idle = nodes[0].leaf.bound_us, [node.leaf for node in nodes], 0
            node = nodes[0]
            if self.bound_us >= self.most_us or node.split is None or idle > patience or done():
                return
            number += 2
            halves = [self._node(ask, number + side, limits, node) for side, limits in enumerate(self._halves(node))]
            heapq.heappop(nodes)
            for half in halves:
                if half is None:
                    return
                heapq.heappush(nodes, half)

    def certificate(self) -> dict[str, Any]:
        """What `bayplan check` adds up."""
        leaves = [
            {"limits": {key: list(pair) for key, pair in leaf.limits.items()}, "duals": leaf.duals}
            for leaf in self.leaves
        ]
        return {"form": FORM, "unit": UNIT, "most_us": self.most_us, "leaves": leaves}

    def _halves(self, node: _Node) -> list[Limits]:
        assert node.split is not None
        key, floor = node.split
        low, high = node.leaf.limits.get(key, (0, int(self.upper[self.whole[key]])))
        return [node.leaf.limits | {key: (low, floor)}, node.leaf.limits | {key: (floor + 1, high)}]

    def _node(self, ask: Ask, number: int, limits: Limits, parent: _Node | None) -> _Node | None:
        """Solve one part, which is never bounded worse than what it is part of; None where that found no end."""
        lower, upper = self.model.lower.copy(), self.model.upper.copy()
        for key, (low, high) in limits.items():
            lower[self.whole[key]], upper[self.whole[key]] = low, high
        model = replace(self.model, lower=lower, upper=upper)
        answer = ask(model, None if parent is None else parent.basis)
        if answer.status is not Status.OPTIMAL and parent is not None:
            answer = ask(model, None)
        if answer.status is not Status.OPTIMAL or answer.row_duals is None or answer.x is None:
            return None
        duals = self._duals(answer.row_duals)
        leaf = Leaf(limits, {self.rows[row]: dual for row, dual in duals.items()}, self._add_up(limits, duals))
        if parent is not None and parent.bound > leaf.bound:
            leaf = replace(parent.leaf, limits=limits)
        return _Node(leaf.bound, number, leaf, self.split(answer.x, limits, leaf.bound / UNIT), answer.basis)

    def _duals(self, row_duals: FloatArray) -> dict[int, int]:
        """Duals as whole numbers by row, none on a side that its row has not."""
        found = {}
        scaled = row_duals * self.fraction
        for row in np.flatnonzero(scaled).tolist():
            dual = whole_dual(float(scaled[row]))
            side = self.exact.row_lower[row] if dual > 0 else self.exact.row_upper[row]
            if dual and np.isfinite(side):
                found[row] = dual
        return found

    def _add_up(self, limits: Limits, duals: dict[int, int]) -> int:
        """What the duals prove, in 1/UNIT µs: all in whole numbers."""
        lower, upper = self.lower.copy(), self.upper.copy()
        for key, (low, high) in limits.items():
            lower[self.whole[key]], upper[self.whole[key]] = low, high
        reduced, total = _whole(self.exact.cost * UNIT), 0
        for row, dual in duals.items():
            side = self.exact.row_lower[row] if dual > 0 else self.exact.row_upper[row]
            total += dual * int(side)
            entries = slice(self.exact.row_start[row], self.exact.row_start[row + 1])
            reduced[self.exact.row_index[entries]] -= dual * self.values[entries]
        return total + int(np.sum(reduced * np.where(reduced > 0, lower, upper)))


def _whole(values: FloatArray) -> Ints:
    return np.array([int(value) for value in values.tolist()], dtype=object)
