"""The relaxation of a stretch of stages (README, model T), and the lateness and certificate that its prices prove.

Only columns and rows of some outputs are built (`tracked`); leaving others out proves no less, and the judge has rows
of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from solvers.engines import ModelBuilder
from solvers.engines.duals import LARGEST, UNIT
from solvers.engines.model import FloatArray, LinearModel
from solvers.joint.given import Given
from solvers.joint.moment import MOST, Row

PIECES = 3
"""How many of the largest sizes memory is counted in whole pieces of."""
SHORT = frozenset(("read", "source", "use", "root", "one", "jam", "beside"))
"""The rows that a box may make impossible."""
LOOKS = 4
"""At how many stages, those with least room, is looked at all that runs again behind them."""


Box = dict[str, tuple[int, int]]
"""The least and most of some columns; of all others 0 and their upper limits."""


@dataclass(frozen=True)
class Leaf:
    """What prices prove of the plans in a box: stages take `late`/UNIT ticks more than their own time, at least."""

    box: Box
    duals: dict[str, int]
    late: int


@dataclass(frozen=True)
class StretchProof:
    """Of stages `first` + 1 to `last`, by the leaves of a tree that holds every plan in some leaf's box."""

    first: int
    last: int
    leaves: tuple[Leaf, ...]

    @property
    def late(self) -> int:
        """How much longer than their own time the stages take, in 1/UNIT ticks."""
        return max(0, min(leaf.late for leaf in self.leaves))

    @property
    def part(self) -> dict[str, Any]:
        """Its part of the certificate."""
        leaves = [
            {"limits": {key: list(pair) for key, pair in one.box.items()}, "duals": one.duals} for one in self.leaves
        ]
        return {"first": self.first, "last": self.last, "leaves": leaves}


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

    def model(self, price: float | None = None) -> LinearModel:
        """The rows so far as a linear program; with a price, what `SHORT` rows ask may be bought at it.

        Then every box has a solution, and the prices of one that has no plan prove much.
        """
        place, builder = {key: number for number, key in enumerate(self.upper)}, ModelBuilder("stretch")
        upper = [np.inf if most == MOST else float(most) for most in self.upper.values()]
        cost = [float(most == MOST) for most in self.upper.values()]
        builder.columns(len(place), 0.0, upper, cost=cost, name="x")
        short = [price is not None and row.key.partition("/")[0] in SHORT for row in self.rows]
        bought = iter(builder.columns(sum(short), 0.0, np.inf, cost=price or 0.0, name="short").tolist())
        numbers, columns, weights = list[int](), list[int](), list[float]()
        limits = np.array([[-np.inf, np.inf]] * len(self.rows)).reshape(-1, 2)
        for number, (row, buys) in enumerate(zip(self.rows, short, strict=True)):
            scale = _scale(row)
            columns += [place[key] for key in row.weights]
            weights += [weight / scale for weight in row.weights.values()]
            if buys:
                columns.append(next(bought))
                weights.append(-1.0 if row.is_upper else 1.0)
            numbers += [number] * (len(row.weights) + buys)
            limits[number, int(row.is_upper)] = row.side / scale
        builder.rows(numbers, columns, weights, limits[:, 0], limits[:, 1], name="row", count=len(self.rows))
        return builder.build()

    def values(self, x: FloatArray) -> dict[str, float]:
        """A solution by column."""
        return {key: float(value) for key, value in zip(self.upper, x, strict=False) if value > 1e-6}

    def leaf(self, row_duals: FloatArray, box: Box) -> Leaf:
        """What an engine's prices prove in a box, as whole numbers; those of times so low that no wait is worth it."""
        spare = {key: UNIT for key, upper in self.upper.items() if upper == MOST}
        late, cost, priced = 0, dict[str, int](), dict[str, int]()
        for row, dual in zip(self.rows, row_duals.tolist(), strict=True):
            if dual == 0:
                continue
            whole = int(dual / _scale(row) * UNIT)
            whole = max(-LARGEST, min(0, whole)) if row.is_upper else min(LARGEST, max(0, whole))
            times = [key for key in row.weights if key in spare]
            whole = min([whole, *(spare[key] for key in times)])
            if whole == 0:
                continue
            priced[row.key] = whole
            late += whole * row.side
            for key, weight in row.weights.items():
                if key in times:
                    spare[key] -= whole
                else:
                    cost[key] = cost.get(key, 0) - whole * weight
        for key, price in cost.items():
            low, high = box.get(key, (0, self.upper[key]))
            late += price * (high if price < 0 else low)
        return Leaf(box, priced, late)


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
