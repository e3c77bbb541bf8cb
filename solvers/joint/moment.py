"""The relaxation at one moment (README, model M), and the bound and certificate that its prices prove.

Only columns and rows that can matter are built; leaving others out proves no less, and the judge has rows of its own.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from solvers.engines import ModelBuilder, solve
from solvers.engines.duals import LARGEST, UNIT
from solvers.ir.solution import Limits
from solvers.joint.given import Given

LINES = 20
"""The most rows for ends of swap-outs, and for ends of swap-ins."""
MOST = 2**80
"""The upper limit of waits, as the judge has it."""


@dataclass(frozen=True)
class Row:
    """lower ≤ Σ weight·column where `side` is the lower limit; for the memory row `side` is the upper one."""

    key: str
    side: int
    weights: dict[str, int]


@dataclass(frozen=True)
class Proof:
    """What the prices at one moment prove, and what the relaxation would do: columns by key, 0 to 1."""

    stage: int
    bound_us: int
    duals: dict[str, int]
    values: dict[str, float]

    @property
    def certificate(self) -> dict[str, Any]:
        """For anyone to add up."""
        return {"form": "moment/1", "stage": self.stage, "unit": UNIT, "duals": self.duals}


class Relaxation:
    """Columns and rows at stage `q`: the moment right after its op has been allocated."""

    def __init__(self, given: Given, q: int) -> None:
        self.given, self.q = given, q
        self.before = [0, *accumulate(given.time)]
        self.here = {q, *given.graph.inputs[q]}
        self.first: dict[int, int] = {}
        for s in range(len(given) - 1, q, -1):
            self.first.update((i, s) for i in given.graph.inputs[s] if i <= q)
        self.upper: dict[str, int] = {"late": MOST, "wait": MOST, "hidden": self._windows()}
        for i in range(q + 1):
            self._columns(i)
        self.rows = [*self._needs(), self._memory(), *self._out(), *self._in(), self._step(), self._window()]

    def _windows(self) -> int:
        given = self.given
        return sum(given.time[s] for s in range(self.q + 1, len(given)) if given.graph.comm[s])

    def _columns(self, i: int) -> None:
        """Those of an output that something behind the moment depends on."""
        if self.given.last[i] <= self.q:
            return
        if i not in self.here and self.given.graph.size[i]:
            self.upper |= {f"keep/{i}": 1, f"swap/{i}": 1}
        if self.given.graph.replay[i]:
            self.upper[f"again/{i}"] = 1

    def _free(self, i: int) -> bool:
        """Whether having the output at the moment takes no memory that is not taken anyway."""
        return i in self.here or not self.given.graph.size[i]

    def _there(self, i: int) -> dict[str, int]:
        return {key: 1 for key in (f"keep/{i}", f"again/{i}", f"swap/{i}") if key in self.upper}

    def _needs(self) -> list[Row]:
        rows = [Row(f"need/{i}", 1, self._there(i)) for i in self.first if not self._free(i)]
        for i in range(self.q + 1):
            if f"again/{i}" in self.upper:
                for j in self.given.graph.inputs[i]:
                    if not self._free(j):
                        rows.append(Row(f"source/{i}/{j}", 0, self._there(j) | {f"again/{i}": -1}))
        return rows

    def _memory(self) -> Row:
        size = self.given.graph.size
        static = self.given.problem.static_bytes
        room = self.given.budget - static - self.given.workspace[self.q] - sum(size[i] for i in self.here)
        return Row("memory", room, {f"keep/{i}": size[i] for i in range(self.q) if f"keep/{i}" in self.upper})

    def _swaps(self) -> list[int]:
        return [i for i in range(self.q) if f"swap/{i}" in self.upper]

    def _out(self) -> list[Row]:
        swaps, rows = self._swaps(), []
        for e in _some(swaps):
            gone = {f"swap/{i}": -self.given.out_time[i] for i in swaps if i >= e}
            rows.append(Row(f"out/{e}", self.before[e + 1] - self.before[self.q], gone | {"wait": 1}))
        return rows

    def _in(self) -> list[Row]:
        swaps, rows, end = self._swaps(), [], len(self.given) - 1
        if self.q == end:
            return []
        for s in sorted({*_some(sorted({self.first.get(i, end) for i in swaps})), end}):
            back = {f"swap/{i}": -self.given.in_time[i] for i in swaps if s == end or self.first.get(i, end) <= s}
            rows.append(Row(f"in/{s}", self.before[self.q + 1] - self.before[s], back | {"late": 1, "wait": -1}))
        return rows

    def _again(self, plain: bool, sign: int) -> dict[str, int]:
        graph, time = self.given.graph, self.given.time
        return {
            f"again/{i}": sign * time[i]
            for i in range(self.q + 1)
            if f"again/{i}" in self.upper and not (plain and graph.comm[i])
        }

    def _step(self) -> Row:
        return Row("step", 0, self._again(False, -1) | {"late": 1, "wait": -1, "hidden": 1})

    def _window(self) -> Row:
        return Row("window", 0, self._again(True, 1) | {"hidden": -1})

    # -- solving

    def proof(self, limits: Limits, engine: str) -> Proof | None:
        """The best prices that an engine finds, as whole numbers; None where it finds none."""
        keys = list(self.upper)
        place, builder = {key: number for number, key in enumerate(keys)}, ModelBuilder("moment")
        upper = [np.inf if self.upper[key] == MOST else float(self.upper[key]) for key in keys]
        builder.columns(len(keys), 0.0, upper, cost=[float(key == "late") for key in keys], name="x")
        scale = float(max(1, *(weight for weight in self._memory().weights.values()), 1))
        for row in self.rows:
            unit = scale if row.key == "memory" else 1.0
            columns, weights = [place[key] for key in row.weights], [w / unit for w in row.weights.values()]
            limit = {"upper" if row.key == "memory" else "lower": row.side / unit}
            builder.row(columns, weights, name=row.key.replace("/", "-"), **limit)
        answer = solve(builder.build(), limits, engine=engine)
        if answer.row_duals is None or answer.x is None:
            return None
        duals = {
            row.key: float(dual) / (scale if row.key == "memory" else 1.0)
            for row, dual in zip(self.rows, answer.row_duals, strict=True)
        }
        values = {key: float(value) for key, value in zip(keys, answer.x, strict=True) if value > 1e-6}
        return self._proved(duals, values)

    def _proved(self, duals: dict[str, float], values: dict[str, float]) -> Proof:
        whole = {}
        for key, dual in duals.items():
            low, high = (-LARGEST, 0) if key == "memory" else (0, LARGEST)
            whole[key] = int(min(high, max(low, dual * UNIT)))  # towards 0
        _balance(whole)
        whole = {key: dual for key, dual in whole.items() if dual}
        ticks = self.before[-1] * UNIT + self.value(whole)
        return Proof(self.q, -(-ticks // (UNIT * self.given.ticks)), whole, values)

    def value(self, duals: dict[str, int]) -> int:
        """What whole prices add up to, in 1/UNIT ticks: sides, and each column at its cheaper limit."""
        total, cost = 0, {"late": UNIT}
        for row in self.rows:
            dual = duals.get(row.key, 0)
            if dual:
                total += dual * row.side
                for key, weight in row.weights.items():
                    cost[key] = cost.get(key, 0) - dual * weight
        return total + sum(price * self.upper[key] for key, price in cost.items() if price < 0)


def _balance(duals: dict[str, int]) -> None:
    """Take from prices until neither the end nor the moment would be worth putting off for ever."""
    ends = [key for key in duals if key == "step" or key.startswith("in/")]
    outs = [key for key in duals if key.startswith("out/")]
    for keys, most in ((ends, UNIT), (outs, None)):
        over = sum(duals[key] for key in keys) - (sum(duals[key] for key in ends) if most is None else most)
        for key in keys:
            less = max(0, min(over, duals[key]))
            duals[key], over = duals[key] - less, over - less


def _some(stages: list[int]) -> list[int]:
    """At most `LINES` of them, evenly, the first and the last included."""
    if len(stages) <= LINES:
        return stages
    places = np.linspace(0, len(stages) - 1, LINES).round().astype(int)
    return sorted({stages[place] for place in places.tolist()})
