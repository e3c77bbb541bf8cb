"""Builds a `LinearModel`, one column or row at a time or many from arrays."""

from math import inf, isfinite

import numpy as np
import numpy.typing as npt

from solvers.engines.model import BoolArray, FloatArray, IntArray, LinearModel, Names
from solvers.ir.errors import InvalidProblem


class ModelBuilder:
    """Collects columns and rows; `build` hands over an immutable model.

    Indices are handed out in the order of the calls, from 0. Bulk calls cost microseconds plus the arrays themselves.
    Refuses (`InvalidProblem`, one sentence) NaN, infinite costs and coefficients, a limit at the wrong infinity, and
    indices that do not exist. A lower limit above its upper one is allowed: such a model is infeasible.
    """

    def __init__(self, name: str = "model") -> None:
        self._name = name
        self._offset = 0.0
        self._columns: list[tuple[FloatArray, FloatArray, BoolArray, FloatArray]] = []
        self._column_blocks: list[tuple[int, str]] = []
        self._column_count = 0
        self._rows: list[tuple[FloatArray, FloatArray]] = []
        self._row_blocks: list[tuple[int, str]] = []
        self._row_count = 0
        self._entries: list[tuple[IntArray, IntArray, FloatArray]] = []
        self._waiting: list[tuple[list[int], list[float], float, float]] = []  # rows that are no arrays yet
        self._extra_costs: list[tuple[IntArray, FloatArray]] = []

    def column(
        self,
        lower: float = 0.0,
        upper: float = np.inf,
        *,
        integer: bool = False,
        cost: float = 0.0,
        name: str = "x",
    ) -> int:
        """Add one column and answer its index."""
        return int(self.columns(1, lower, upper, integer=integer, cost=cost, name=name)[0])

    def binary(self, cost: float = 0.0, name: str = "x") -> int:
        """Add one column of {0, 1} and answer its index."""
        return self.column(0, 1, integer=True, cost=cost, name=name)

    def columns(
        self,
        count: int,
        lower: npt.ArrayLike = 0.0,
        upper: npt.ArrayLike = np.inf,
        *,
        integer: npt.ArrayLike = False,
        cost: npt.ArrayLike = 0.0,
        name: str = "x",
    ) -> IntArray:
        """Add `count` columns; numbers are broadcast, and names are name[0], name[1], … Answers their indices."""
        low, high, price = (_floats(value, count, name) for value in (lower, upper, cost))
        _refuse(name, "lower limit", low, np.isnan(low) | (low == np.inf))
        _refuse(name, "upper limit", high, np.isnan(high) | (high == -np.inf))
        _refuse(name, "cost", price, ~np.isfinite(price))
        kinds = np.broadcast_to(np.asarray(integer, dtype=np.bool_), (count,)).copy()
        if count:
            self._columns.append((low, high, kinds, price))
            self._column_blocks.append((self._column_count, name))
        first, self._column_count = self._column_count, self._column_count + count
        return np.arange(first, self._column_count, dtype=np.int64)

    def binaries(self, count: int, *, cost: npt.ArrayLike = 0.0, name: str = "x") -> IntArray:
        """Add `count` columns of {0, 1} and answer their indices."""
        return self.columns(count, 0, 1, integer=True, cost=cost, name=name)

    def row(
        self,
        columns: npt.ArrayLike,
        values: npt.ArrayLike = 1.0,
        lower: float = -np.inf,
        upper: float = np.inf,
        name: str = "row",
    ) -> int:
        """Add lower ≤ Σ values·columns ≤ upper and answer its index; a column named twice counts twice."""
        if isinstance(columns, list) and isinstance(values, list) and self._is_row(columns, values, lower, upper):
            self._waiting.append((columns.copy(), values.copy(), lower, upper))
            self._row_blocks.append((self._row_count, name))
            self._row_count += 1
            return self._row_count - 1
        places = np.asarray(columns, dtype=np.int64).ravel()
        rows = np.zeros(len(places), dtype=np.int64)
        return int(self.rows(rows, places, values, np.array([lower]), np.array([upper]), name)[0])

    def rows(
        self,
        rows: npt.ArrayLike,
        columns: npt.ArrayLike,
        values: npt.ArrayLike = 1.0,
        lower: npt.ArrayLike = -np.inf,
        upper: npt.ArrayLike = np.inf,
        name: str = "row",
        count: int | None = None,
    ) -> IntArray:
        """Add many rows from triplets: entry e is values[e] at (rows[e], columns[e]), rows from 0 in this call.

        Their number is `count`, else the length of `lower` or `upper`, else the largest row + 1. Answers their indices.
        """
        places = np.asarray(rows, dtype=np.int64).ravel()
        index = np.broadcast_to(np.asarray(columns, dtype=np.int64), places.shape).copy()
        value = _floats(values, len(places), name)
        total = _row_count(places, lower, upper) if count is None else count
        low, high = _floats(lower, total, name), _floats(upper, total, name)
        _refuse(name, "lower limit", low, np.isnan(low) | (low == np.inf))
        _refuse(name, "upper limit", high, np.isnan(high) | (high == -np.inf))
        _refuse(name, "coefficient", value, ~np.isfinite(value))
        _refuse(name, "row number", places, (places < 0) | (places >= total))
        _refuse(name, "column", index, (index < 0) | (index >= self._column_count))
        if total:
            self._settle()
            self._rows.append((low, high))
            self._row_blocks.append((self._row_count, name))
            self._entries.append((places + self._row_count, index, value))
        first, self._row_count = self._row_count, self._row_count + total
        return np.arange(first, self._row_count, dtype=np.int64)

    def _is_row(self, columns: list[int], values: list[float], lower: float, upper: float) -> bool:
        """Whether a row may stand as it is; others are refused where all are looked at as arrays."""
        sound = len(columns) == len(values) and lower < inf and upper > -inf
        return sound and all(0 <= one < self._column_count for one in columns) and all(map(isfinite, values))

    def _settle(self) -> None:
        """Make arrays of the rows that wait."""
        if not self._waiting:
            return
        columns, values, lower, upper = zip(*self._waiting, strict=True)
        first = self._row_count - len(self._waiting)
        lengths = [len(one) for one in columns]
        places = np.repeat(np.arange(first, self._row_count, dtype=np.int64), lengths)
        index = np.fromiter((one for row in columns for one in row), np.int64, len(places))
        value = np.fromiter((one for row in values for one in row), np.float64, len(places))
        self._rows.append((np.array(lower, dtype=np.float64), np.array(upper, dtype=np.float64)))
        self._entries.append((places, index, value))
        self._waiting.clear()

    def add_cost(self, columns: npt.ArrayLike, costs: npt.ArrayLike) -> None:
        """Add to the costs of existing columns; a column named twice is charged twice."""
        index = np.asarray(columns, dtype=np.int64).ravel()
        price = _floats(costs, len(index), "cost")
        _refuse("cost", "cost", price, ~np.isfinite(price))
        _refuse("cost", "column", index, (index < 0) | (index >= self._column_count))
        self._extra_costs.append((index, price))

    def add_offset(self, amount: float) -> None:
        """Add a constant to the objective."""
        if not np.isfinite(amount):
            raise InvalidProblem(f"the objective's constant is {amount}: give a finite number")
        self._offset += float(amount)

    def build(self) -> LinearModel:
        """The model as it stands; the builder may go on and build a larger one."""
        self._settle()
        columns = [np.concatenate(part) for part in zip(*self._columns, strict=True)] or [np.zeros(0)] * 4
        limits = [np.concatenate(part) for part in zip(*self._rows, strict=True)] or [np.zeros(0)] * 2
        lower, upper, integer, cost = columns
        for index, price in self._extra_costs:
            np.add.at(cost, index, price)
        start, place, value = self._compressed()
        arrays = (cost, lower, upper, integer := integer.astype(np.bool_), start, place, value, *limits)
        for array in arrays:
            array.flags.writeable = False
        return LinearModel(
            name=self._name,
            cost=cost,
            offset=self._offset,
            lower=lower,
            upper=upper,
            integer=integer,
            row_start=start,
            row_index=place,
            row_value=value,
            row_lower=limits[0],
            row_upper=limits[1],
            column_names=_names(self._column_blocks, self._column_count),
            row_names=_names(self._row_blocks, self._row_count),
        )

    def _compressed(self) -> tuple[IntArray, IntArray, FloatArray]:
        """The triplets by row and column, duplicates added up, zeros left out."""
        none = np.zeros(0, dtype=np.int64)
        parts = [np.concatenate(part) for part in zip(*self._entries, strict=True)] or [none, none, np.zeros(0)]
        row, column, value = parts
        width = max(self._column_count, 1)
        keys, position = np.unique(row * width + column, return_inverse=True)
        total = np.bincount(position, value, minlength=len(keys)).astype(np.float64)
        keys, total = keys[total != 0], total[total != 0]
        counts = np.bincount(keys // width, minlength=self._row_count)
        start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return start, keys % width, total


def _floats(value: npt.ArrayLike, count: int, name: str) -> FloatArray:
    array = np.asarray(value, dtype=np.float64)
    if array.ndim > 1 or (array.ndim == 1 and len(array) not in (1, count)):
        raise InvalidProblem(f"{name} is given {array.size} numbers for {count} places: give one, or one each")
    return np.broadcast_to(array, (count,)).copy()


def _row_count(places: IntArray, lower: npt.ArrayLike, upper: npt.ArrayLike) -> int:
    sizes = [np.asarray(limit).size for limit in (lower, upper) if np.asarray(limit).ndim]
    return max(sizes) if sizes else int(places.max(initial=-1)) + 1


def _refuse(name: str, what: str, values: FloatArray | IntArray, wrong: BoolArray) -> None:
    for place in np.flatnonzero(wrong)[:1]:
        raise InvalidProblem(f"{what} {values[place]} of {name}[{place}] cannot stand in a linear model: correct it")


def _names(blocks: list[tuple[int, str]], count: int) -> Names:
    return Names(tuple(start for start, _ in blocks), tuple(prefix for _, prefix in blocks), count)
