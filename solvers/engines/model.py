"""A linear model as plain arrays: the one thing that every engine understands, and the exact judge of its solutions."""

from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from solvers.engines.exact import dot, exact_activities, integral

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Basis = tuple[npt.NDArray[np.int8], npt.NDArray[np.int8]]
"""Which columns and rows stand at which limit at a linear program's optimum, in the engine's own numbers."""

TOLERANCE = 1e-6
"""Excess allowed relative to max(1, |limit|): float engines' feasibility tolerance; see `LinearModel.violations`."""


@dataclass(frozen=True, slots=True)
class Names:
    """Names of columns or rows in blocks: a block of one is called by its prefix, of many prefix[0], prefix[1], …"""

    starts: tuple[int, ...]
    prefixes: tuple[str, ...]
    count: int

    def __getitem__(self, index: int) -> str:
        """The name of one column or row."""
        if not 0 <= index < self.count:
            raise IndexError(index)
        block = bisect_right(self.starts, index) - 1
        end = self.starts[block + 1] if block + 1 < len(self.starts) else self.count
        start, prefix = self.starts[block], self.prefixes[block]
        return prefix if end - start == 1 else f"{prefix}[{index - start}]"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise of a point: `where` is a column or row, `excess` how far beyond `limit` its `value` lies."""

    kind: str
    where: str
    value: float
    limit: float

    @property
    def excess(self) -> float:
        """How far the value lies beyond the limit, never negative."""
        return abs(self.value - self.limit)

    def __str__(self) -> str:
        return f"{self.kind} {self.where} is {self.value:.17g}, {self.excess:.3g} beyond {self.limit:.17g}"


@dataclass(frozen=True, eq=False)
class LinearModel:
    """Minimise cost·x + offset over lower ≤ x ≤ upper, row_lower ≤ A x ≤ row_upper, x integral where `integer` says so.

    Made by `ModelBuilder.build`; its arrays are read-only. A is stored by rows: row i holds the entries
    `row_start[i]:row_start[i + 1]` of `row_index` and `row_value`, columns rising, without duplicates and zeros.
    """

    name: str
    cost: FloatArray
    offset: float
    lower: FloatArray
    upper: FloatArray
    integer: BoolArray
    row_start: IntArray
    row_index: IntArray
    row_value: FloatArray
    row_lower: FloatArray
    row_upper: FloatArray
    column_names: Names
    row_names: Names

    @property
    def columns(self) -> int:
        """Number of columns (variables)."""
        return len(self.cost)

    @property
    def rows(self) -> int:
        """Number of rows (constraints)."""
        return len(self.row_lower)

    @cached_property
    def entry_rows(self) -> IntArray:
        """The row of every stored entry of A."""
        return np.repeat(np.arange(self.rows, dtype=np.int64), np.diff(self.row_start))

    @cached_property
    def integral_rows(self) -> BoolArray:
        """Rows of integer columns with integral coefficients only: their activity is an integer and holds exactly."""
        loose = ~self.integer[self.row_index] | ~integral(self.row_value)
        clean: BoolArray = np.bincount(self.entry_rows[loose], minlength=self.rows) == 0
        return clean

    @cached_property
    def objective_is_integral(self) -> bool:
        """True where every solution's objective is an integer: integral costs on integer columns, integral offset."""
        counted = self.cost != 0
        return bool(np.all(self.integer[counted]) and np.all(integral(self.cost[counted]))) and self.offset.is_integer()

    def objective(self, x: FloatArray) -> float:
        """Cost of x with the offset, computed exactly and rounded once."""
        return dot(self.cost, x, self.offset)

    def violations(self, x: FloatArray, tolerance: float = TOLERANCE) -> tuple[Violation, ...]:
        """Everything that x breaks, decided in exact arithmetic; empty for a feasible point.

        A column or row may exceed its limit by `tolerance · max(1, |limit|)`, an integer column may be `tolerance` away
        from an integer; but where every column of a row is exactly integral and so are its coefficients (bytes, counts)
        nothing is tolerated: a budget is not exceeded by a thousand bytes because a solver's binary was 0.999999.
        """
        return (
            *self._column_violations(x, tolerance),
            *self._fraction_violations(x, tolerance),
            *self._row_violations(x, tolerance),
        )

    def dual_bound(self, row_duals: FloatArray, noise: float = 1e-9) -> float:
        """The lower bound that the row duals prove, by weak duality.

        It is offset + Σ y·(row limit) + Σ over columns of the least (c − Aᵀy)·x within their limits. Any y gives a
        valid bound, so that a certificate is checked by adding it up. Where the side that the bound needs is infinite,
        duals and reduced costs up to `noise · max(1, |c|)` count as zero (a float engine's rounding), larger ones give
        −inf.
        """
        limits = np.where(row_duals > 0, self.row_lower, self.row_upper)
        scale = noise * max(1.0, float(np.abs(self.cost).max(initial=0.0)))
        free_rows = np.isinf(limits)
        if np.any(np.abs(row_duals[free_rows]) > scale):
            return -np.inf
        row_duals = np.where(free_rows, 0.0, row_duals)  # before the reduced costs, which must be those of the sum
        reduced = self.reduced_costs(row_duals)
        corners = np.where(reduced > 0, self.lower, self.upper)
        free_columns = np.isinf(corners)
        if np.any(np.abs(reduced[free_columns]) > scale):
            return -np.inf
        rows = dot(row_duals[~free_rows], limits[~free_rows], self.offset)
        return dot(reduced[~free_columns], corners[~free_columns], rows)

    def reduced_costs(self, row_duals: FloatArray) -> FloatArray:
        """Cost minus Aᵀ·duals: what one more unit of each column costs at these row prices."""
        paid = np.bincount(self.row_index, self.row_value * row_duals[self.entry_rows], minlength=self.columns)
        return self.cost - paid

    def contradiction(self) -> str | None:
        """A sentence when some column or row alone can never hold, else None; engines need not be asked then."""
        low = np.where(self.integer, np.ceil(self.lower), self.lower)
        high = np.where(self.integer, np.floor(self.upper), self.upper)
        for column in np.flatnonzero(low > high)[:1].tolist():
            return (
                f"column {self.column_names[column]} has no value between {self.lower[column]} and {self.upper[column]}"
            )
        empty = (np.diff(self.row_start) == 0) & ((self.row_lower > 0) | (self.row_upper < 0))
        for row in np.flatnonzero((self.row_lower > self.row_upper) | empty)[:1].tolist():
            return f"row {self.row_names[row]} has no value between {self.row_lower[row]} and {self.row_upper[row]}"
        return None

    def _column_violations(self, x: FloatArray, tolerance: float) -> list[Violation]:
        allowed = np.where(self.integer & integral(x), 0.0, tolerance)
        low, high = x < _widened(self.lower, -allowed), x > _widened(self.upper, allowed)
        return [
            Violation("column", self.column_names[j], float(x[j]), float(self.lower[j] if low[j] else self.upper[j]))
            for j in np.flatnonzero(low | high | ~np.isfinite(x)).tolist()
        ]

    def _fraction_violations(self, x: FloatArray, tolerance: float) -> list[Violation]:
        nearest = np.round(x)
        wrong = self.integer & (np.abs(x - nearest) > tolerance)
        return [
            Violation("integer column", self.column_names[j], float(x[j]), float(nearest[j]))
            for j in np.flatnonzero(wrong).tolist()
        ]

    def _row_violations(self, x: FloatArray, tolerance: float) -> list[Violation]:
        if not np.all(np.isfinite(x)):
            return []  # said by the columns already
        fractional_columns = np.bincount(self.entry_rows[~integral(x)[self.row_index]], minlength=self.rows)
        exact = self.integral_rows & (fractional_columns == 0)
        found = []
        for row, activity in self._suspects(x, tolerance, exact):
            slack = Fraction(0 if exact[row] else tolerance)
            for limit, sign in ((float(self.row_lower[row]), 1), (float(self.row_upper[row]), -1)):
                if not np.isfinite(limit):
                    continue
                wanted = Fraction(limit)
                if sign * (wanted - activity) > slack * max(Fraction(1), abs(wanted)):
                    found.append(Violation("row", self.row_names[row], float(activity), limit))
        return found

    def _suspects(self, x: FloatArray, tolerance: float, exact: BoolArray) -> list[tuple[int, Fraction]]:
        """Rows that floating point cannot clear, with their exact activities."""
        terms = self.row_value * x[self.row_index]
        activity = np.bincount(self.entry_rows, terms, minlength=self.rows)
        size = np.bincount(self.entry_rows, np.abs(terms), minlength=self.rows)
        # A sum of k products errs by less than (k + 1)·2⁻⁵³·Σ|terms| (doubled here); integers below 2⁵³ not at all.
        error = np.where(exact & (size < 2**53), 0.0, (np.diff(self.row_start) + 2) * 2.0**-52 * size)
        slack = np.where(exact, 0.0, tolerance * (1 - 2.0**-40))
        clear = activity - error >= _widened(self.row_lower, -slack)
        clear &= activity + error <= _widened(self.row_upper, slack)
        suspects = np.flatnonzero(~clear)
        return list(zip(suspects.tolist(), exact_activities(self, x, suspects), strict=True))


def _widened(limits: FloatArray, relative: FloatArray) -> FloatArray:
    """Limits moved by relative · max(1, |limit|); infinite ones stay."""
    finite = np.where(np.isfinite(limits), limits, 0.0)
    return limits + relative * np.maximum(1.0, np.abs(finite))
