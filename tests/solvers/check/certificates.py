"""Certificates for tiny problems: by hand, and from linear programs over the checker's rows, their prices rounded."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linprog

from solvers.check.keyed import Column, Row
from solvers.check.recompute_graph.cut import CutRelaxation, Shape
from solvers.ir import RecomputeGraphProblem, RecomputeOp
from tests.solvers.check.recompute_graph.naive_cut import column_keys, row_keys

UNIT = 2**20
PENALTY = 10_000
"""µs for each unit by which a row is missed: leaves without a point get prices that prove much."""
Box = dict[str, tuple[int, int]]
Certificate = dict[str, Any]


def op(time_us: int, output_bytes: int, *inputs: int, comm: bool = False) -> RecomputeOp:
    """An op."""
    return RecomputeOp(name="op", time_us=time_us, output_bytes=output_bytes, inputs=inputs, comm=comm)


STORY = RecomputeGraphProblem(
    name="forward 0, 1; backward 2 reads 1, 3 reads 0 and 2",
    budget_bytes=12,
    static_bytes=5,
    ops=(op(4, 4), op(3, 3, 0), op(5, 1, 1), op(6, 2, 0, 2)),
)
"""Op 0 is kept through stage 2 or computed again in 3. memory/2: 5 static + 1 (op 2) + 3 (op 1) + 4·(z − y) ≤ 12."""


def story(leaves: Any, **changes: Any) -> Certificate:
    """Of STORY, cut behind stage 2, op 0 a class of its own."""
    shape = {"cut": 2, "first": 2, "last": 2, "explicit": [], "groups": [[[0]]], "zones": [], "peaks": []}
    return {"form": "cut-relaxation/1", "unit": 1, **shape, "leaves": leaves, **changes}


def leaf(
    limits: dict[str, list[int]] | None = None,
    duals: dict[str, int] | None = None,
    windows: dict[str, dict[str, int]] | None = None,
) -> dict[str, Any]:
    """A leaf as JSON."""
    return {"limits": limits or {}, "duals": duals or {}, "windows": windows or {}}


SPLIT = [leaf({"y/0/0": [0, 0]}, {"need/0/0": 16, "memory/2": -4}), leaf({"y/0/0": [1, 1]})]
"""Op 0 is not computed again, or it is: each proves 22, the optimum."""


def as_json(shape: Shape) -> Certificate:
    """A certificate of this shape without leaves."""
    return {
        "form": "cut-relaxation/1",
        "unit": UNIT,
        "cut": shape.cut,
        "first": shape.first,
        "last": shape.last,
        "explicit": sorted(shape.explicit),
        "groups": [[list(layer) for layer in layers] for layers in shape.groups],
        "zones": list(shape.zones),
        "peaks": sorted(shape.peaks),
        "leaves": [],
    }


@dataclass(frozen=True)
class Solved:
    """A leaf's program: what it is worth in µs beyond the base, the values of the columns, and the leaf as JSON."""

    value_us: float
    point: dict[str, float]
    leaf: dict[str, Any]


class Programs:
    """The linear programs of one relaxation: all of its rows, and for each zone that its windows hold what they can."""

    def __init__(self, problem: RecomputeGraphProblem, shape: Shape) -> None:
        self.shape, self.relaxation = shape, CutRelaxation(problem, shape)
        self.columns: dict[str, Column] = {}
        for key in column_keys(problem, shape):
            column = self.relaxation.columns.get(key)
            if column is not None:
                self.columns[key] = column
        self.rows = [(key, row) for key in row_keys(problem, shape) if (row := self.relaxation.rows.get(key))]
        self.rows += [(f"zone {zone}", row) for zone, row in self._zones(problem)]

    def _zones(self, problem: RecomputeGraphProblem) -> Iterator[tuple[int, Row]]:
        for zone, stages in enumerate(self.relaxation.windows):
            weights = {key: time for key, time, where in self.relaxation.hidden if where == zone}
            yield zone, Row(None, sum(problem.ops[t].time_us for t in stages), weights)

    def solve(self, limits: Box) -> Solved:
        """The program within these limits."""
        position = {key: n for n, key in enumerate(self.columns)}
        count = len(self.columns)
        bounds: list[tuple[float, float | None]] = [
            limits.get(key, (0, column.upper)) for key, column in self.columns.items()
        ]
        signs = [1 if row.lower is None else -1 for _, row in self.rows]
        weights = np.hstack([np.zeros((len(self.rows), count)), -np.eye(len(self.rows))])
        for n, (sign, (_, row)) in enumerate(zip(signs, self.rows, strict=True)):
            for key, weight in row.weights.items():
                weights[n, position[key]] = sign * weight
        found = linprog(
            [column.cost_us for column in self.columns.values()] + [PENALTY] * len(self.rows),
            A_ub=weights,
            b_ub=[(row.upper or 0) if row.lower is None else -row.lower for _, row in self.rows],
            bounds=bounds + [(0, None)] * len(self.rows),
            method="highs",
        )
        assert found.fun is not None
        assert found.x is not None
        prices = [round(UNIT * sign * price) for sign, price in zip(signs, found.ineqlin.marginals, strict=True)]
        return Solved(found.fun, dict(zip(self.columns, found.x, strict=False)), self._leaf(limits, prices))

    def _leaf(self, limits: Box, prices: list[int]) -> dict[str, Any]:
        duals, windows = {}, {}
        for (key, _), price in zip(self.rows, prices, strict=True):
            if key.startswith("zone "):
                zone = int(key.removeprefix("zone "))
                times = {time for _, time, where in self.relaxation.hidden if where == zone and time > 0}
                windows[str(zone)] = {str(time): -price * time for time in sorted(times)}
            elif price:
                duals[key] = price
        return {"limits": {key: list(pair) for key, pair in limits.items()}, "duals": duals, "windows": windows}

    def tree(self, depth: int, limits: Box | None = None) -> list[Solved]:
        """The leaves of a tree that splits the most fractional column, so many times on each way down."""
        limits = limits or {}
        solved = self.solve(limits)
        key = max(solved.point, key=lambda key: abs(solved.point[key] - round(solved.point[key])), default=None)
        if depth == 0 or key is None:
            return [solved]
        low, high = limits.get(key, (0, self.columns[key].upper))
        if low == high:
            return [solved]
        end = min(int(solved.point[key]), high - 1)
        left, right = limits | {key: (low, end)}, limits | {key: (end + 1, high)}
        return self.tree(depth - 1, left) + self.tree(depth - 1, right)

    def certificate(self, leaves: list[Solved]) -> Certificate:
        """The certificate of these leaves, as a file would hold it."""
        raw = as_json(self.shape) | {"leaves": [solved.leaf for solved in leaves]}
        read: Certificate = json.loads(json.dumps(raw))
        return read


def shaken(source: random.Random, certificate: Certificate, share: float) -> Certificate:
    """The same with a share of its prices changed, whatever that proves."""
    found: Certificate = json.loads(json.dumps(certificate))
    for leaf in found["leaves"]:
        for prices in (leaf["duals"], *leaf["windows"].values()):
            for key, price in prices.items():
                if source.random() < share:
                    prices[key] = source.choice([0, price // 2, price + source.randint(0, 9), 3 * price])
    return found
