"""A sweep's rows as tables of colours and curves: which setting costs what, and where there is no plan."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from experiments.figures import figures_of
from experiments.kinds import CLUSTER, LAYOUT, PIPELINE, RECOMPUTE, STABILITY, TRAINING
from experiments.reporting.charts import Cell, Heat, Plot, Segment, Stack
from experiments.reporting.curves import lines_plot
from experiments.tables import axis_name, shown
from solvers.ir import Row

MOST_LINES = 200
"""Lines of a table of colours; the sweep's rows hold all."""


class Measure(NamedTuple):
    """What a sweep of some kind is about: its name, how it was obtained, a row's value, and whether more is better.

    `whole`: colours compare all cells; else those of a line, where lines differ by more than policies do.
    """

    name: str
    how: str
    value: Callable[[Row], float | None]
    more: bool
    whole: bool = False


def _ratio(row: Row) -> float | None:
    return figures_of(row.figures).ratio if "status" in row.figures else None


def _samples(row: Row) -> float | None:
    told = row.figures.get("samples_per_s")
    return _number(told.get("mean") if isinstance(told, dict) else told)


def _objective_ms(row: Row) -> float | None:
    value = _number(row.figures.get("objective_us"))
    return None if value is None else value / 1e3


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _step_ms(row: Row) -> float | None:
    value = _number(row.figures.get("step_us"))
    return None if value is None else value / 1e3


MEASURES = {
    TRAINING: (Measure("Step time over unlimited", "executed", _ratio, False, whole=True),),
    PIPELINE: (Measure("Throughput (samples/s)", "simulated", _samples, True),),
    CLUSTER: (
        Measure("Throughput (samples/s)", "simulated", _samples, True),
        Measure("Step after a failure (ms)", "solved", _objective_ms, False),
    ),
}


ALONE = {
    TRAINING: (Measure("Step time over unlimited", "executed", lambda row: figures_of(row.figures).ratio, False),),
    PIPELINE: MEASURES[PIPELINE],
    CLUSTER: MEASURES[CLUSTER],
    RECOMPUTE: (Measure("Step (ms)", "executed", _step_ms, False),),
    LAYOUT: (Measure("Step (ms)", "executed", _step_ms, False),),
    STABILITY: (Measure("Step time over unlimited", "executed", lambda row: _number(row.figures.get("ratio")), False),),
}
"""What the rows of one run are about."""
MOST_BARS = 40


def bars_of(kind: str, rows: Sequence[Row]) -> list[tuple[str, tuple[Stack, ...]]]:
    """For each measure a bar for each policy; one that has no figure says how it ended."""
    found = []
    for measure in ALONE.get(kind, ()):
        values = {str(row.asked.get("policy")): (row, measure.value(row)) for row in rows[:MOST_BARS]}
        most = max((value for _, value in values.values() if value is not None), default=0.0)
        told = {name: one for name, one in values.items() if one[1] is not None or one[0].outcome != "ok"}
        if most > 0 and len(told) > 1:
            bars = tuple(_bar(measure, name, row, value, most) for name, (row, value) in told.items())
            found.append((f"{measure.name}: {'more' if measure.more else 'less'} is better", bars))
    return found


def _bar(measure: Measure, name: str, row: Row, value: float | None, most: float) -> Stack:
    if value is None:
        return Stack(name, "", (), row.outcome)
    return Stack(name, measure.how, (Segment("compute", name, 100 * value / most, ""),), f"{value:,.3f}")


def heats_of(kind: str, rows: Sequence[Row], axes: Sequence[str]) -> list[tuple[Measure, Heat]]:
    """For each measure that rows have a table: a line for each cell, a column for each policy."""
    return [(one, heat) for one in MEASURES.get(kind, ()) if (heat := _heat(one, rows, axes)) is not None]


def plots_of(kind: str, rows: Sequence[Row], axes: Sequence[str]) -> list[Plot]:
    """For each measure curves over the first axis of numbers, one for each policy and value of the other axes."""
    found = []
    for measure in MEASURES.get(kind, ()):
        axis = next((one for one in axes if _is_numeric(rows, one)), None)
        if axis is None:
            continue
        lines: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            value, place = measure.value(row), _number(row.asked.get(axis))
            if value is not None and place is not None:
                lines.setdefault(_label(row, [one for one in axes if one != axis]), []).append((place, value))
        plot = lines_plot(lines, measure.how, f"{measure.name} over {axis_name(axis)}", axis_name(axis), measure.name)
        found += [] if plot is None else [plot]
    return found


def _is_numeric(rows: Sequence[Row], axis: str) -> bool:
    values = {row.asked.get(axis) for row in rows if isinstance(row.asked.get(axis), str | int | float)}
    return len(values) > 1 and all(_number(value) is not None for value in values)


def _label(row: Row, axes: Sequence[str]) -> str:
    return ", ".join(
        [str(row.asked.get("policy")), *(f"{axis_name(axis)} {shown(row.asked.get(axis))}" for axis in axes)]
    )


def _heat(measure: Measure, rows: Sequence[Row], axes: Sequence[str]) -> Heat | None:
    policies = list(dict.fromkeys(str(row.asked.get("policy")) for row in rows if measure.value(row) is not None))
    if not policies:
        return None
    cells: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in rows:
        key = tuple(shown(row.asked.get(axis, "–")) for axis in axes)
        cells.setdefault(key, {})[str(row.asked.get("policy"))] = row
    every = [value for row in rows if (value := measure.value(row)) is not None] if measure.whole else []
    body = tuple(
        (*map(Cell, key or ("all",)), *_line(measure, found, policies, every))
        for key, found in list(cells.items())[:MOST_LINES]
    )
    note = (
        f"The darker, the better {'of all cells' if measure.whole else 'within its line'}; a word or – stands where "
        "there is no figure: the table of all cells says why."
        + (f" The first {MOST_LINES} of {len(cells)} lines." if len(cells) > MOST_LINES else "")
    )
    return Heat(measure.name, (*(map(axis_name, axes) if axes else ("cell",)), *policies), body, note)


def _line(measure: Measure, found: Mapping[str, Row], policies: Sequence[str], every: Sequence[float]) -> list[Cell]:
    """Values of a line, coloured from worst to best; a cell that failed as a whole says so in each."""
    values = {name: measure.value(row) for name, row in found.items()}
    known = every or [value for value in values.values() if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    cells = []
    for policy in policies:
        row, value = found.get(policy, found.get("all")), values.get(policy)
        if value is None:
            cells.append(Cell("–" if row is None else row.outcome))
        else:
            rising = (value - low) / (high - low) if high > low else 1.0
            cells.append(Cell(f"{value:,.3f}", rising if measure.more or not high > low else 1 - rising))
    return cells
