"""Small models with known answers, random ones, and a brute force that shares no code with the engines."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from solvers.engines import LinearModel, ModelBuilder

ROOT = Path(__file__).resolve().parents[3]
ENGINES = ("highs", "cpsat", "gurobi")


def knapsack(items: int = 20, rows: int = 5, seed: int = 1) -> LinearModel:
    """Take the most valuable items, each weighing in `rows` ways, within 40 % of the total weight each way."""
    random = np.random.default_rng(seed)
    builder = ModelBuilder("knapsack")
    take = builder.binaries(items, cost=-random.integers(10, 60, items), name="take")
    weights = random.integers(1, 40, (rows, items))
    builder.rows(
        np.repeat(np.arange(rows), items),
        np.tile(take, rows),
        weights.ravel(),
        upper=np.floor(weights.sum(1) * 0.4),
        name="weight",
    )
    return builder.build()


HARD = knapsack(120, 40, 3)
"""No engine proves its optimum within minutes; solutions come at once."""


def market_split(rows: int = 4, seed: int = 0) -> LinearModel:
    """Halve every row's weight exactly: equalities whose solutions are few and hard to find."""
    random = np.random.default_rng(seed)
    columns = 10 * (rows - 1)
    builder = ModelBuilder("market split")
    take = builder.binaries(columns, cost=-1.0, name="take")
    weights = random.integers(0, 100, (rows, columns))
    half = weights.sum(1) // 2
    builder.rows(np.repeat(np.arange(rows), columns), np.tile(take, rows), weights.ravel(), half, half)
    return builder.build()


def integer_program(
    cost: list[int],
    ranges: list[tuple[int, int]],
    rows: list[tuple[list[int], int | None, int | None]],
    offset: int = 0,
) -> LinearModel:
    """One column a cost and range, all integer; one row a (coefficients, lower, upper)."""
    builder = ModelBuilder("program")
    for price, (low, high) in zip(cost, ranges, strict=True):
        builder.column(low, high, integer=True, cost=price)
    for values, low_limit, high_limit in rows:
        builder.row(
            range(len(cost)),
            values,
            -np.inf if low_limit is None else low_limit,
            np.inf if high_limit is None else high_limit,
        )
    builder.add_offset(offset)
    return builder.build()


def brute_force(
    cost: list[int],
    ranges: list[tuple[int, int]],
    rows: list[tuple[list[int], int | None, int | None]],
    offset: int = 0,
) -> int | None:
    """The least cost over every integer point, None if no point satisfies the rows."""
    best = None
    for point in itertools.product(*(range(low, high + 1) for low, high in ranges)):
        sums = [sum(a * x for a, x in zip(values, point, strict=True)) for values, _, _ in rows]
        fits = all(
            (low is None or total >= low) and (high is None or total <= high)
            for total, (_, low, high) in zip(sums, rows, strict=True)
        )
        value = offset + sum(c * x for c, x in zip(cost, point, strict=True))
        if fits and (best is None or value < best):
            best = value
    return best


Program = tuple[list[int], list[tuple[int, int]], list[tuple[list[int], int | None, int | None]], int]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Integer programs of up to four columns and three rows: feasible and infeasible, with equalities and ranges."""
    small = st.integers(-5, 5)
    columns = draw(st.integers(1, 4))
    limits = st.tuples(small, st.integers(0, 4)).map(lambda pair: (pair[0], pair[0] + pair[1]))
    ranges = draw(st.lists(limits, min_size=columns, max_size=columns))
    cost = draw(st.lists(small, min_size=columns, max_size=columns))
    rows = []
    for _ in range(draw(st.integers(0, 3))):
        values = draw(st.lists(small, min_size=columns, max_size=columns))
        low = draw(st.none() | st.integers(-15, 15))
        rows.append((values, low, draw(st.none() | st.integers(low if low is not None else -15, 16))))
    return cost, ranges, rows, draw(small)


def run_python(code: str, **options: object) -> "subprocess.Popen[str]":
    """A fresh interpreter that finds this repository's packages."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    child: subprocess.Popen[str] = subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,  # type: ignore[call-overload]
    )
    return child


def last_json(output: str) -> Any:
    """The last line that a child printed."""
    return json.loads(output.strip().splitlines()[-1])
