"""The relaxation of a stretch of stages (README, model T), and the lateness and certificate that its prices prove.

Only columns and rows of some outputs are built (`tracked`); leaving others out proves no less, and the judge has rows
of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from solvers.engines import ModelBuilder, solve
from solvers.engines.duals import LARGEST, UNIT
from solvers.ir.solution import Limits
from solvers.joint.given import Given
from solvers.joint.moment import MOST, Row

PIECES = 3
"""How many of the largest sizes memory is counted in whole pieces of."""
LOOKS = 4
"""At how many stages, those with least room, is looked at all that runs again behind them."""


@dataclass(frozen=True)
class StretchProof:
    """What prices prove: stages `first` + 1 to `last` take `late`/UNIT ticks more than their own time, at least."""

    first: int
    last: int
    late: int
    duals: dict[str, int]


class Stretch:
    """Columns and rows of stages `first` to `last`; of the first one only what is there when it has ended.

    `until[i]`: the latest of these stages that depends on op i, directly or not; `room[q]`: bytes beside op q.
    """

    def __init__(self, given: Given, first: int, last: int, tracked: set[int]) -> None:
        self.given, self.first, self.last = given, first, last
        self.inputs = [frozenset(inputs) for inputs in given.graph.inputs[: last + 1]]
        self.size, self.comm = given.graph.size, given.graph.comm
        self.whole = given.budget - given.problem.static_bytes
        self.items = sorted(i for i in tracked if i <= last)
        self.until = _last_use(self.inputs)
        self.stages = range(first, last + 1)
        self.room = {q: self.whole - given.workspace[q] - self.bytes_of(self.need(q)) for q in self.stages}
        self.upper: dict[str, int] = {}
        for q in self.stages:
            self._columns(q)
        self.rows = [row for q in self.stages for row in self._stage(q)]
        for p in sorted(self.stages[:-1], key=lambda q: (self.room[q], q))[:LOOKS]:
            self.rows += self._ever(p)

    def need(self, q: int) -> frozenset[int]:
        """Op q and its inputs."""
        return self.inputs[q] | {q}

    def bytes_of(self, outputs: frozenset[int]) -> int:
        """What these outputs take together."""
        return sum(self.size[i] for i in outputs)

    # -- columns

    def _columns(self, q: int) -> None:
        if q > self.first:
            self.upper |= {f"wait/{q}": MOST, f"stall/{q}": MOST, f"more/{q}": MOST}
        for i in self.items:
            if i <= q < self.last and self.until[i] > q:
                if i in self.need(q) or self.size[i] <= self.room[q]:
                    self.upper[f"keep/{i}/{q}"] = 1
                if i not in self.need(q):
                    self.upper[f"host/{i}/{q}"] = 1
            if self.first < q and i < q:
                self.runs(i, q)
                if self.until[i] >= q:
                    self._moves(i, q)

    def _moves(self, i: int, q: int) -> None:
        self.upper[f"come/{i}/{q}"] = 1
        if f"keep/{i}/{q - 1}" in self.upper:
            self.upper[f"leave/{i}/{q}"] = 1
        if f"keep/{i}/{q}" in self.upper and i not in self.need(q):
            self.upper[f"ahead/{i}/{q}"] = 1

    def runs(self, i: int, q: int) -> None:
        """Make the column of op i's running again in stage q, where it may."""
        graph = self.given.graph
        if graph.replay[i] and q >= graph.replays_from and not (self.comm[i] and self.comm[q]):
            self.upper[f"again/{i}/{q}"] = 1

    # -- rows

    def row(self, key: str, side: int, weights: dict[str, int], is_upper: bool = False) -> Row:
        """A row of those of these columns that there are."""
        return Row(key, side, {column: w for column, w in weights.items() if w and column in self.upper}, is_upper)

    def _stage(self, q: int) -> Iterator[Row]:
        if q < self.last:
            yield from self._fit(q)
        if q > self.first:
            yield from self._times(q)
        for i in self.items:
            if q == self.first and f"host/{i}/{q}" in self.upper:
                yield self.row(f"both/{i}", 1, {f"keep/{i}/{q}": 1, f"host/{i}/{q}": 1}, is_upper=True)
            elif f"come/{i}/{q}" in self.upper:
                yield from self._flow(i, q)
            if f"again/{i}/{q}" in self.upper:
                yield from self._run(i, q)

    def _fit(self, q: int) -> Iterator[Row]:
        """What stays fits beside op q, its inputs and workspace: in bytes and in whole pieces."""
        room = self.room[q]
        held = [i for i in self.items if i not in self.need(q) and f"keep/{i}/{q}" in self.upper and self.size[i]]
        sizes = sorted({self.size[i] for i in held}, reverse=True)[:PIECES]
        for grain in sorted({1, room // 2 + 1, room // 3 + 1, *sizes}) if held else ():
            pieces = {f"keep/{i}/{q}": self.size[i] // grain for i in held}
            yield self.row(f"fit/{grain}/{q}", room // grain, pieces, is_upper=True)

    def _times(self, q: int) -> Iterator[Row]:
        """What runs again, returns or leaves takes time of its lane."""
        given, items = self.given, [i for i in self.items if i < q]
        again = {f"again/{i}/{q}": given.time[i] for i in items}
        if self.comm[q]:
            yield self.row(f"run/{q}", given.time[q], again, is_upper=True)
        else:
            yield self.row(f"run/{q}", 0, {column: -ticks for column, ticks in again.items()} | {f"more/{q}": 1})
        yield self.row(f"in/{q}", 0, {f"come/{i}/{q}": -given.in_time[i] for i in items} | {f"stall/{q}": 1})
        if q < self.last:
            ahead = {f"ahead/{i}/{q}": -given.in_time[i] for i in items}
            yield self.row(f"early/{q}", -given.time[q], ahead | {f"more/{q}": 1, f"wait/{q + 1}": 1})
        gone = {i: -given.out_time[i] for i in items}
        if q > self.first + 1:
            since = {f"stall/{q - 1}": 1, f"more/{q - 1}": 1, f"wait/{q}": 1}
            leaving = {f"leave/{i}/{q}": ticks for i, ticks in gone.items()}
            yield self.row(f"out/{q}", -given.time[q - 1], leaving | since)
        latest = {f"leave/{i}/{q}": ticks for i, ticks in gone.items() if i in self.need(q - 1)}
        yield self.row(f"last/{q}", 0, latest | {f"wait/{q}": 1})

    def _found(self, j: int, q: int) -> dict[str, int]:
        """One of these is 1 where an op of stage q reads op j's output."""
        return {f"keep/{j}/{q - 1}": 1, f"come/{j}/{q}": 1, f"again/{j}/{q}": 1}

    def _flow(self, i: int, q: int) -> Iterator[Row]:
        """Where op i's output is: what stage q reads is found, what stays was there, what returns had left."""
        keep, gone, again = f"keep/{i}/{q}", f"leave/{i}/{q}", f"again/{i}/{q}"
        arrived = {f"come/{i}/{q}": 1, f"ahead/{i}/{q}": 1}
        if i in self.inputs[q]:
            found = self._found(i, q)
            if self.comm[q]:
                del found[again]
            yield self.row(f"read/{i}/{q}", 1, found)
        if keep in self.upper:
            before = {f"keep/{i}/{q - 1}": -1, again: -1} | dict.fromkeys(arrived, -1)
            yield self.row(f"hold/{i}/{q}", 0, before | {keep: 1, gone: 1}, is_upper=True)
        host = {f"host/{i}/{q}": 1, f"host/{i}/{q - 1}": -1, gone: -1}
        yield self.row(f"away/{i}/{q}", 0, arrived | host, is_upper=True)
        if gone in self.upper:
            yield self.row(f"stay/{i}/{q}", 0, {gone: 1, f"keep/{i}/{q - 1}": -1}, is_upper=True)

    def _run(self, i: int, q: int) -> Iterator[Row]:
        """What runs again is not away, and has its inputs."""
        again = f"again/{i}/{q}"
        away = {f"host/{i}/{q - 1}": 1, f"leave/{i}/{q}": 1}
        yield self.row(f"one/{i}/{q}", 1, away | {again: 1}, is_upper=True)
        for j in sorted(self.inputs[i]):
            if f"come/{j}/{q}" in self.upper:
                yield self.row(f"source/{i}/{j}/{q}", 0, self._found(j, q) | {again: -1})

    def _ever(self, p: int) -> Iterator[Row]:
        """As at a single moment: what is read behind stage p was there or on the host then, or runs again at all."""
        behind = range(p + 1, self.last + 1)
        for i in self.items:
            runs = {f"again/{i}/{q}": 1 for q in behind if f"again/{i}/{q}" in self.upper}
            if i <= p and runs:
                self.upper[f"ever/{i}/{p}"] = 1
                yield self.row(f"sum/{i}/{p}", 0, runs | {f"ever/{i}/{p}": -1})
        read = {j for q in behind for j in self.inputs[q]}
        for i in self.items:
            if i in read and i <= p:
                yield self.row(f"use/{i}/{p}", 1, self._there(i, p))
            if f"ever/{i}/{p}" in self.upper and self.until[i] > p:
                for j in sorted(self.inputs[i].intersection(self.items)):
                    yield self.row(f"root/{i}/{j}/{p}", 0, self._there(j, p) | {f"ever/{i}/{p}": -1})

    def _there(self, i: int, p: int) -> dict[str, int]:
        return {f"keep/{i}/{p}": 1, f"host/{i}/{p}": 1, f"ever/{i}/{p}": 1}

    # -- solving

    def solved(self, limits: Limits, engine: str) -> tuple[StretchProof, dict[str, float]] | None:
        """The best prices that an engine finds, as whole numbers, and its solution; None where it finds none."""
        keys = list(self.upper)
        place, builder = {key: number for number, key in enumerate(keys)}, ModelBuilder("stretch")
        upper = [np.inf if self.upper[key] == MOST else float(self.upper[key]) for key in keys]
        cost = [float(self.upper[key] == MOST) for key in keys]
        builder.columns(len(keys), 0.0, upper, cost=cost, name="x")
        scales = [_scale(row) for row in self.rows]
        for row, scale in zip(self.rows, scales, strict=True):
            columns, weights = [place[key] for key in row.weights], [w / scale for w in row.weights.values()]
            limit = {"upper" if row.is_upper else "lower": row.side / scale}
            builder.row(columns, weights, name=row.key.replace("/", "-"), **limit)
        answer = solve(builder.build(), limits, engine=engine)
        if answer.row_duals is None or answer.x is None:
            return None
        duals = {}
        for row, dual, scale in zip(self.rows, answer.row_duals, scales, strict=True):
            low, high = (-LARGEST, 0) if row.is_upper else (0, LARGEST)
            duals[row.key] = int(min(high, max(low, float(dual) / scale * UNIT)))
        values = {key: float(value) for key, value in zip(keys, answer.x, strict=True) if value > 1e-6}
        return self.proved(duals), values

    def proved(self, duals: dict[str, int]) -> StretchProof:
        """What whole prices add up to, after those of times are taken down until no wait is worth having."""
        spare = {key: UNIT for key, upper in self.upper.items() if upper == MOST}
        total, cost, priced = 0, dict[str, int](), dict[str, int]()
        for row in self.rows:
            times = [key for key in row.weights if key in spare]
            dual = min([duals.get(row.key, 0), *(spare[key] for key in times)])
            if dual == 0:
                continue
            priced[row.key] = dual
            total += dual * row.side
            for key, weight in row.weights.items():
                if key in spare:
                    spare[key] -= dual
                else:
                    cost[key] = cost.get(key, 0) - dual * weight
        total += sum(price * self.upper[key] for key, price in cost.items() if price < 0)
        return StretchProof(self.first, self.last, total, priced)


def _scale(row: Row) -> float:
    """Rows of bytes are counted in their largest piece."""
    return float(max([1, *map(abs, row.weights.values())])) if row.key.startswith(("fit/", "beside/")) else 1.0


def _last_use(inputs: list[frozenset[int]]) -> list[int]:
    """By op, the latest of these ops that depends on it, directly or not."""
    last = list(range(len(inputs)))
    for i in reversed(range(len(inputs))):
        for j in inputs[i]:
            last[j] = max(last[j], last[i])
    return last
