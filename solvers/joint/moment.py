"""The relaxation at one moment (README, model M), and the bound and certificate that its prices prove.

Only columns and rows that can matter are built; leaving others out proves no less, and the judge has rows of its own.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np

from solvers.engines import ModelBuilder
from solvers.engines.duals import LARGEST, UNIT
from solvers.engines.model import FloatArray, LinearModel
from solvers.ir.errors import BayplanError
from solvers.ir.solution import Limits
from solvers.joint.asked import solved
from solvers.joint.given import Given

LINES = 20
"""The most rows for ends of swap-outs, and for ends of swap-ins; so many more of each in each round of `refined`."""
ROUNDS, BROKEN = 8, 0.01
"""Rounds at most in which rows are added, and the ticks by which a solution breaks these."""
GRAINS = 8
"""The most sizes by which memory is counted in whole pieces; so many times by which communication is."""
MOST = 2**80
"""The upper limit of waits, as the judge has it."""


@dataclass(frozen=True)
class Row:
    """side ≤ Σ weight·column; where it `is_upper`, Σ weight·column ≤ side."""

    key: str
    side: int
    weights: dict[str, int]
    is_upper: bool = False


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
        return {"form": "moment/2", "stage": self.stage, "unit": UNIT, "duals": self.duals}


class Relaxation:
    """Columns and rows at stage `q`: the moment right after its op has been allocated."""

    def __init__(self, given: Given, q: int) -> None:
        self.given, self.q = given, q
        self.before = [0, *accumulate(given.time)]
        self.here = {q, *given.graph.inputs[q]}
        self.first: dict[int, int] = {}
        for s in range(len(given) - 1, q, -1):
            self.first.update((i, s) for i in given.graph.inputs[s] if i <= q)
        ops = given.problem.ops
        self.windows = [op.time_us for op in ops[q + 1 :] if op.comm]
        self.longest = max(self.windows, default=-1)
        self.end = len(given) - 1
        self.upper: dict[str, int] = {"late": MOST, "wait": MOST}
        for i in range(q + 1):
            self._columns(i)
        self.rows = [*self._needs(), *self._memory(), *self._out(), *self._in(), self._step(), *self._window()]

    def _columns(self, i: int) -> None:
        """Those of an output that something behind the moment depends on."""
        if self.given.last[i] <= self.q:
            return
        if i not in self.here and self.given.graph.size[i]:
            self.upper |= {f"keep/{i}": 1, f"swap/{i}": 1}
        if self.given.graph.replay[i]:
            self.upper[f"again/{i}"] = 1
            op = self.given.problem.ops[i]
            if not op.comm and op.time_us <= self.longest:
                self.upper[f"hide/{i}"] = 1

    def _free(self, i: int) -> bool:
        """Whether having the output at the moment takes no memory that is not taken anyway."""
        return i in self.here or not self.given.graph.size[i]

    def _there(self, i: int) -> dict[str, int]:
        return {key: 1 for key in (f"keep/{i}", *self._runs(i), f"swap/{i}") if key in self.upper}

    def _runs(self, i: int) -> list[str]:
        return [key for key in (f"again/{i}", f"hide/{i}") if key in self.upper]

    def _needs(self) -> list[Row]:
        rows = [Row(f"need/{i}", 1, self._there(i)) for i in self.first if not self._free(i)]
        for i in range(self.q + 1):
            if f"again/{i}" in self.upper:
                for j in self.given.graph.inputs[i]:
                    if not self._free(j):
                        rows.append(Row(f"source/{i}/{j}", 0, self._there(j) | dict.fromkeys(self._runs(i), -1)))
        return rows

    def _memory(self) -> list[Row]:
        """In bytes, and in whole pieces of some sizes: of what is larger than a piece less fits than its bytes say."""
        size, static = self.given.graph.size, self.given.problem.static_bytes
        room = self.given.budget - static - self.given.workspace[self.q] - sum(size[i] for i in self.here)
        kept = {f"keep/{i}": size[i] for i in range(self.q) if f"keep/{i}" in self.upper}
        sizes = sorted({most for most in kept.values() if most <= room}, reverse=True)[:GRAINS]
        grains = {1} if room < 0 else {1, room + 1, room // 2 + 1, *sizes}
        rows = [_whole(f"memory/{grain}", kept, [room], grain) for grain in sorted(grains)]
        return [row for row in rows if row.weights or row.key == "memory/1"]

    def _swaps(self) -> list[int]:
        return [i for i in range(self.q) if f"swap/{i}" in self.upper]

    def _out(self) -> list[Row]:
        return [self._gone(e) for e in _some(self._swaps())]

    def _gone(self, e: int) -> Row:
        gone = {f"swap/{i}": -self.given.out_time[i] for i in self._swaps() if i >= e}
        return Row(f"out/{e}", self.before[e + 1] - self.before[self.q], gone | {"wait": 1})

    def _in(self) -> list[Row]:
        if self.q == self.end:
            return []
        return [self._back(s) for s in sorted({*_some(sorted({*map(self._read, self._swaps())})), self.end})]

    def _read(self, i: int) -> int:
        """The first op behind the moment that reads it; the last one where none does."""
        return self.first.get(i, self.end)

    def _back(self, s: int) -> Row:
        back = {f"swap/{i}": -self.given.in_time[i] for i in self._swaps() if s == self.end or self._read(i) <= s}
        return Row(f"in/{s}", self.before[self.q + 1] - self.before[s], back | {"late": 1, "wait": -1})

    def _broken(self, values: dict[str, float]) -> list[Row]:
        """Rows of the lanes that a solution breaks: of those around it each is broken most; the worst of each lane."""
        swaps, wait = self._swaps(), values.get("wait", 0.0)
        out, back, load = dict[int, float](), dict[int, float](), 0.0
        for i in reversed(swaps):
            load += self.given.out_time[i] * values.get(f"swap/{i}", 0.0)
            out[i] = load + self.before[i + 1] - self.before[self.q] - wait
        load, left = 0.0, values.get("late", 0.0) - wait
        for i in sorted(swaps, key=self._read) if self.q < self.end else ():
            load += self.given.in_time[i] * values.get(f"swap/{i}", 0.0)
            back[self._read(i)] = load + self.before[self.q + 1] - self.before[self._read(i)] - left
        known = {row.key for row in self.rows}
        rows = [*map(self._gone, _worst(out)), *map(self._back, _worst(back))]
        return [row for row in rows if row.key not in known]

    def _step(self) -> Row:
        again = {f"again/{i}": -self.given.time[i] for i in range(self.q + 1) if f"again/{i}" in self.upper}
        return Row("step", 0, again | {"late": 1, "wait": -1})

    def _window(self) -> list[Row]:
        """In µs, and in whole pieces of some lengths: of what takes long few fit behind each communication."""
        ops, longest = self.given.problem.ops, self.longest
        hidden = {f"hide/{i}": ops[i].time_us for i in range(self.q + 1) if f"hide/{i}" in self.upper}
        if not any(hidden.values()):
            return []
        times = sorted({time for time in hidden.values() if time}, reverse=True)[:GRAINS]
        grains = {1, *(longest // parts + 1 for parts in (2, 3, 4)), *times}
        return [_whole(f"window/{grain}", hidden, self.windows, grain) for grain in sorted(grains)]

    # -- solving

    def proof(self, limits: Limits, engine: str) -> Proof | None:
        """The best prices that an engine finds, as whole numbers; None where it finds none."""
        answer = solved(self.model(), limits, engine)
        if answer.row_duals is None or answer.x is None:
            return None
        values = {key: float(value) for key, value in zip(self.upper, answer.x, strict=True) if value > 1e-6}
        whole = self.whole(answer.row_duals)
        ticks = self.before[-1] * UNIT + self.value(whole)
        return Proof(self.q, -(-ticks // (UNIT * self.given.ticks)), whole, values)

    def refined(self, proof: Proof, limits: Limits, engine: str) -> Proof:
        """A better proof from one that is known, by rows of the lanes that its solution breaks, as long as time is."""
        deadline = time.perf_counter() + limits.time_s
        for _ in range(ROUNDS):
            rows, left = self._broken(proof.values), deadline - time.perf_counter()
            if not rows or left <= 0:
                break
            self.rows += rows
            try:
                found = self.proof(msgspec.structs.replace(limits, time_s=left), engine)
            except BayplanError:  # an engine that refuses a model's numbers takes no bound away
                found = None
            if found is None:
                break
            proof = found if found.bound_us > proof.bound_us else replace(proof, values=found.values)
        return proof

    def model(self, counts: Sequence[Sequence[str]] = ()) -> LinearModel:
        """The rows as a linear program; behind them and the columns, one each for sums of columns."""
        keys = list(self.upper)
        place, builder = {key: number for number, key in enumerate(keys)}, ModelBuilder("moment")
        upper = [np.inf if self.upper[key] == MOST else float(self.upper[key]) for key in keys]
        builder.columns(len(keys), 0.0, upper, cost=[float(key == "late") for key in keys], name="x")
        sums = [builder.column(0.0, float(len(columns)), name="count") for columns in counts]
        for row in self.rows:
            scale = self._scale(row)
            columns, weights = [place[key] for key in row.weights], [w / scale for w in row.weights.values()]
            limit = {"upper" if row.is_upper else "lower": row.side / scale}
            builder.row(columns, weights, name=row.key.replace("/", "-"), **limit)
        for total, summed in zip(sums, counts, strict=True):
            ones = [1.0] * len(summed)
            builder.row([*map(place.__getitem__, summed), total], [*ones, -1.0], name="sum", lower=0.0, upper=0.0)
        return builder.build()

    def _scale(self, row: Row) -> float:
        """Rows of bytes are counted in their largest output."""
        return float(max(1, *row.weights.values(), 1)) if row.key == "memory/1" else 1.0

    def whole(self, row_duals: FloatArray) -> dict[str, int]:
        """An engine's prices of the rows as whole numbers, by key, without those of 0."""
        whole = {}
        for row, dual in zip(self.rows, row_duals.tolist(), strict=True):
            low, high = (-LARGEST, 0) if row.is_upper else (0, LARGEST)
            whole[row.key] = int(min(high, max(low, dual / self._scale(row) * UNIT)))  # towards 0
        _balance(whole)
        return {key: dual for key, dual in whole.items() if dual}

    def value(self, duals: dict[str, int], beside: Mapping[str, int] = MappingProxyType({})) -> int:
        """What whole prices add up to, in 1/UNIT ticks: sides, and each column at its cheaper limit.

        `beside`: what columns cost beside that.
        """
        total, cost = 0, {**beside, "late": UNIT}
        for row in self.rows:
            dual = duals.get(row.key, 0)
            if dual:
                total += dual * row.side
                for key, weight in row.weights.items():
                    cost[key] = cost.get(key, 0) - dual * weight
        return total + sum(price * self.upper[key] for key, price in cost.items() if price < 0)


def _worst(broken: dict[int, float]) -> list[int]:
    """Of places with what each is broken by those that are so more than both beside them, at most `LINES`."""
    places = sorted(broken)
    amounts = [0.0, *(broken[place] for place in places), 0.0]
    peaks = [k for k in range(1, len(places) + 1) if amounts[k - 1] < amounts[k] >= amounts[k + 1]]
    peaks.sort(key=lambda k: -amounts[k])
    return [places[k - 1] for k in peaks[:LINES] if amounts[k] > BROKEN]


def _whole(key: str, amounts: dict[str, int], rooms: list[int], grain: int) -> Row:
    """That amounts share these rooms, counted in whole grains; what is left of a grain counts nowhere."""
    pieces = {column: amount // grain for column, amount in amounts.items() if amount >= grain}
    return Row(key, sum(room // grain for room in rooms), pieces, is_upper=True)


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
