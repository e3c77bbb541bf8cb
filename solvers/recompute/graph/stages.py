"""The corrected R/S/U/F model of Lynx-OPT as a linear model (README, model M; the paper's Table 2, corrected)."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from solvers.engines import LinearModel, ModelBuilder
from solvers.engines.model import FloatArray
from solvers.recompute.graph.replay import Instance, Runs

Allowed = Callable[[int, int], bool]
"""Whether stage t may recompute op i < t."""
Pair = tuple[int, int]
Step = tuple[int, int, int]


def latest_dependants(given: Instance) -> list[int]:
    """By op, the latest op that reads it, or what is computed from it again (README, (B)); itself where none does."""
    last = list(range(len(given)))
    for i in reversed(range(len(given))):
        for j in given.inputs[i]:
            last[j] = max(last[j], last[i] if given.replay[i] else i)
    return last


def hideable(given: Instance, t: int, i: int) -> bool:
    """Whether some valid plan may recompute op i during the communication of stage t."""
    fits = not given.comm[i] and given.time[i] <= given.time[t] and i not in given.inputs[t]
    return fits and given.may_replay(t, i)


def recomputable(given: Instance, t: int, i: int) -> bool:
    """Whether some valid plan may recompute op i in stage t; false only where no valid plan does."""
    return hideable(given, t, i) if given.comm[t] else given.may_replay(t, i)


def column_count(given: Instance) -> int:
    """About how many columns model M has, without building it."""
    last = latest_dependants(given)
    return sum((2 + len(given.inputs[i])) * (last[i] - i) * 2 for i in range(len(given)))


@dataclass(frozen=True)
class StageModel:
    """The model, where R and S stand in a solution, and the byte unit of U."""

    model: LinearModel
    computed: dict[Pair, int]
    kept: dict[Pair, int]
    freed: dict[Step, int]
    levels: dict[Pair, int]
    unit: int

    def recomputed(self, x: FloatArray, stages: int) -> list[set[int]]:
        """What a solution computes again, by stage."""
        found: list[set[int]] = [set() for _ in range(stages)]
        for (t, i), column in self.computed.items():
            if x[column] > 0.5:
                found[t].add(i)
        return found

    def start(self, given: Instance, runs: Runs) -> FloatArray | None:
        """A valid plan as a complete solution; None where it recomputes what this model leaves out.

        `runs` must be free of useless ones (`replay.useful`) and retain the least.
        """
        x = np.zeros(self.model.columns)
        for t, run in enumerate(runs):
            for i, until in run.items():
                if i < t and (t, i) not in self.computed:
                    return None
                if i < t:
                    x[self.computed[t, i]] = 1
                for s in range(t + 1, until + 1) if given.size[i] > 0 else ():
                    x[self.kept[s, i]] = 1
        _fill_memory(self, given, runs, x)
        return x


def _fill_memory(model: StageModel, given: Instance, runs: Runs, x: FloatArray) -> None:
    """F maximal and the levels that follow, in the model's unit."""
    kept: dict[int, int] = {}
    for t, run in enumerate(runs):
        level = sum(given.size[i] for i in kept)
        order = sorted(run)
        last = {j: i for i in order for j in (*given.inputs[i], i)}
        for i in range(t + 1):
            if i in run:
                level += given.size[i]
            if (t, i) in model.levels:
                x[model.levels[t, i]] = level / model.unit
            for d in (*given.inputs[i], i) if i in run else ():
                ends = run.get(d, kept.get(d, t)) <= t
                if ends and last[d] == i:
                    level -= given.size[d]
                    if (t, d, i) in model.freed:
                        x[model.freed[t, d, i]] = 1
        kept = {i: until for i, until in {**kept, **run}.items() if until > t}


def stage_model(given: Instance, allowed: Allowed = lambda t, i: True, integral: bool = False) -> StageModel:
    """Model M with R[t,i] for the allowed pairs only; `integral` makes F and U integer columns (for CP-SAT).

    Columns that are zero in every plan without useless runs, or in every valid plan, are left out, so that with all
    pairs allowed the model's optimum is the problem's (README, M, "which columns").
    """
    return _Builder(given, allowed, integral).build()


@dataclass
class _Rows:
    """Rows of one family as triplets."""

    name: str
    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)

    def add(self, terms: list[tuple[int, float]], lower: float, upper: float) -> None:
        """One row lower ≤ Σ value · column ≤ upper."""
        number = len(self.lower)
        for column, value in terms:
            self.rows.append(number)
            self.columns.append(column)
            self.values.append(value)
        self.lower.append(lower)
        self.upper.append(upper)


class _Builder:
    """One constraint family a method, numbered as in the README."""

    def __init__(self, given: Instance, allowed: Allowed, integral: bool) -> None:
        self.given, self.integral = given, integral
        shared = max(1, math.gcd(*given.size))
        self.unit = shared if integral else shared * _halvings(max(given.size) // shared)
        self.room = (given.budget - given.static) // shared * shared / self.unit
        self.builder = ModelBuilder("recompute-graph")
        self.inputs = [tuple(j for j in sources if given.size[j] > 0) for sources in given.inputs]
        last, count = latest_dependants(given), len(given)
        live = [(t, i) for t in range(count) for i in range(t) if last[i] >= t and given.size[i] > 0]
        runs = [(t, i) for t, i in live if recomputable(given, t, i) and allowed(t, i)]
        costs = [0.0 if given.comm[t] else float(given.time[i]) for t, i in runs]
        first = self.builder.columns(len(runs), 0, 1, integer=True, cost=costs or 0.0, name="computed")
        self.r: dict[Pair, int] = dict(zip(runs, first.tolist(), strict=True))
        self.s: dict[Pair, int] = dict(zip(live, self.builder.binaries(len(live), name="kept").tolist(), strict=True))
        self.by_stage: list[list[int]] = [[] for _ in range(count)]
        for t, i in runs:
            self.by_stage[t].append(i)
        self.f: dict[Step, int] = {}
        self.freed: dict[Pair, list[tuple[int, int]]] = {}
        self.u: dict[Pair, int] = {}

    def build(self) -> StageModel:
        self._frees()
        self._inputs()
        self._windows()
        self._retention()
        self._levels()
        self.builder.add_offset(float(self.given.base))
        return StageModel(self.builder.build(), self.r, self.s, self.f, self.u, self.unit)

    def _add(self, rows: _Rows) -> None:
        if rows.lower:
            self.builder.rows(rows.rows, rows.columns, rows.values, rows.lower, rows.upper, rows.name)

    def _present(self, t: int, j: int) -> list[tuple[int, float]]:
        """−R[t,j] − S[t,j]."""
        return [(found[t, j], -1.0) for found in (self.r, self.s) if (t, j) in found]

    def _inputs(self) -> None:
        """(M1) R[t,i] + Σ_{k<i} F[t,j,k] ≤ R[t,j] + S[t,j] for inputs j; (M2) those of a communication: S[t,j] = 1."""
        rows, given = _Rows("inputs"), self.given
        for t in range(len(given)):
            for j in self.inputs[t]:
                if given.comm[t]:
                    rows.add([(self.s[t, j], 1.0)], 1, 1)
                else:
                    rows.add([(column, 1.0) for column, _ in self._present(t, j)], 1, math.inf)
            for i in self.by_stage[t]:
                for j in self.inputs[i]:
                    freed = [(column, 1.0) for k, column in self.freed.get((t, j), ()) if k < i]
                    rows.add([(self.r[t, i], 1.0), *freed, *self._present(t, j)], -math.inf, 0)
        self._add(rows)

    def _retention(self) -> None:
        """(M3) S[t+1,i] + Σ F[t,i,·] ≤ R[t,i] + S[t,i]: kept or freed at most once; (M4) R[t,i] + S[t,i] ≤ 1."""
        lasting, once = _Rows("lasting"), _Rows("once")
        for (t, i), column in self.s.items():
            left = [(freed, 1.0) for _, freed in self.freed.get((t, i), ())]
            left += [(self.s[t + 1, i], 1.0)] if (t + 1, i) in self.s else []
            if left:
                lasting.add([*left, *self._present(t, i)], -math.inf, 0)
            if (t, i) in self.r:
                once.add([(column, 1.0), (self.r[t, i], 1.0)], -math.inf, 1)
        self._add(lasting)
        self._add(once)

    def _windows(self) -> None:
        """(M5) In a communication's stage Σ time_i R[t,i] ≤ time_t."""
        rows, given = _Rows("window"), self.given
        for t in range(len(given)):
            if given.comm[t] and sum(given.time[i] for i in self.by_stage[t]) > given.time[t]:
                terms = [(self.r[t, i], float(given.time[i])) for i in self.by_stage[t] if given.time[i]]
                rows.add(terms, -math.inf, given.time[t])
        self._add(rows)

    def _frees(self) -> None:
        """(M6) F[t,d,i] ≤ R[t,i]; F[t,d,i] = 0 where op t reads d, and at i = t, as nothing follows."""
        rows, given = _Rows("frees"), self.given
        for t in range(len(given)):
            for i in self.by_stage[t]:
                for d in (*self.inputs[i], i):
                    if d not in self.inputs[t]:
                        column = self.builder.column(0, 1, integer=self.integral, name="freed")
                        self.f[t, d, i] = column
                        self.freed.setdefault((t, d), []).append((i, column))
                        rows.add([(column, 1.0), (self.r[t, i], -1.0)], -math.inf, 0)
        self._add(rows)

    def _levels(self) -> None:
        """(M7) U[t,i] = U[t,k] + size_i R[t,i] − Σ size_d F[t,d,k] ≤ room, k the step before, or Σ size S[t,·]."""
        rows, given, unit = _Rows("levels"), self.given, self.unit
        for t in range(len(given)):
            held = [i for i in range(t) if (t, i) in self.s]
            before = [(self.s[t, i], -given.size[i] / unit) for i in held if given.size[i]]
            for i in self.by_stage[t]:
                buffer = given.size[t] / unit if given.comm[t] else 0.0
                column = self.builder.column(0, max(0.0, self.room - buffer), integer=self.integral, name="level")
                self.u[t, i] = column
                rows.add([(column, 1.0), *before, *_term(self.r[t, i], -given.size[i] / unit)], 0, 0)
                frees = [(self.f[t, d, i], given.size[d] / unit) for d in (*self.inputs[i], i) if (t, d, i) in self.f]
                before = [(column, -1.0), *frees]
            rows.add([(column, -value) for column, value in before], -math.inf, self.room - given.size[t] / unit)
        self._add(rows)


def _term(column: int, value: float) -> list[tuple[int, float]]:
    return [(column, value)] if value else []


def _halvings(most: int) -> int:
    """The power of two that brings sizes below a million, where floats' tolerances are less than one unit."""
    return int(2 ** max(0, most.bit_length() - 20))
