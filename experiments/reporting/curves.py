"""Curves of a run: device memory over a step beside the budget, losses over the training, sweeps over an axis."""

import contextlib
import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.reporting.charts import FINEST, PALETTE, Line, Plot, Tick, curve, ticks
from experiments.reporting.folder import MOST_BYTES, Found, Recorded
from experiments.reporting.inside import Budget
from solvers.ir import InvalidInput, Row
from solvers.ir.amounts import UNITS

MOST = 12
"""Curves of one picture; more cannot be told apart."""
STEPS = 4
"""A curve of this many times fewer columns than `FINEST` is as fine as anyone sees."""


def memory_plot(found: Found, finest: int = FINEST) -> Plot | None:
    """Bytes in use over a step, executed and (dashed) planned; None where no report tells them."""
    told = [one for one in found.reports if len(one.report.memory) > 1]
    order = {str(row.asked.get("policy")): number for number, row in enumerate(found.rows)}
    told.sort(key=lambda one: (order.get(one.name, len(order)), one.name, one.role == "planned"))
    told = told[:MOST]
    if not told:
        return None
    budget = budget_of(found, told)
    right = max(one.report.makespan_us for one in told)
    most = max(float(size) for one in told for _, size in one.report.memory)
    top = 1.06 * max(most, budget or 0.0, 1.0)
    unit = next((name for name in ("GiB", "MiB", "KiB") if top >= 4 * UNITS[name]), "B")
    size = UNITS[unit]
    names = list(dict.fromkeys(one.name for one in told))
    paired = len(names) < len(told)
    lines = tuple(_memory_line(one, names, right, top, unit, finest, paired=paired) for one in told)
    rule = None if not budget else Tick(round(100 - 100 * budget / top, 2), f"budget {budget / size:,.2f} {unit}")
    scale, time = (1e6, "s") if right >= 2e6 else (1e3, "ms")
    return Plot(
        "Memory over one step, beside the budget",
        lines,
        ticks(right, scale),
        ticks(top, size, from_top=True),
        f"{time} since the step began",
        f"device memory in use ({unit})",
        rule,
    )


def budget_of(found: Found, told: Sequence[Recorded]) -> float | None:
    """The budget that rows or reports name; None where they name none, or several."""
    said = [*(row.figures.get("budget_bytes") for row in found.rows), *(one.report.budget_bytes for one in told)]
    known = {float(one) for one in said if isinstance(one, int | float) and one > 0}
    return known.pop() if len(known) == 1 else None


def _memory_line(
    one: Recorded, names: Sequence[str], right: float, top: float, unit: str, finest: int, *, paired: bool
) -> Line:
    size = UNITS[unit]
    report = one.report
    points = [(float(at), float(amount)) for at, amount in report.memory]
    points.append((report.makespan_us, points[-1][1]))
    facts = f"peak {report.peak_bytes / size:,.2f} {unit}, {report.makespan_us / 1e3:,.3f} ms"
    path = curve(points, right, top, steps=True, finest=finest // STEPS)
    dashed = one.role == "planned" and paired
    return Line(one.name, report.how, names.index(one.name) % PALETTE, path, facts, dashed=dashed)


def loss_plot(found: Found, finest: int = FINEST) -> Plot | None:
    """The loss of every training step, a curve for each policy; equal ones lie on the first, which is wide."""
    losses = {**_losses_of_rows(found.rows), **_losses_of_files(found)}
    finite = {name: _finite(values) for name, values in losses.items()}
    for name, points in finite.items():
        if len(points) < len(losses[name]):
            left = f"{len(losses[name]) - len(points)} of {len(losses[name])} losses"
            found.inside.remark(f"{left} of {name} are no finite numbers: the others are drawn")
    known = {name: points for name, points in finite.items() if len(points) > 1}
    if not known:
        return None
    shown = dict(list(known.items())[:MOST])
    every = [value for points in shown.values() for _, value in points]
    low, high = min(every), max(every)
    base = math.floor(low * 10) / 10
    top = max((high - base) * 1.06, 1e-9)
    right = max(points[-1][0] for points in shown.values())
    first = next(iter(shown.values()))
    lines = []
    for number, (name, points) in enumerate(shown.items()):
        above_base = [(step, value - base) for step, value in points]
        path = curve(above_base, right, top, steps=False, finest=finest // STEPS)
        same = ", equal to the first" if number and points == first else ""
        facts = f"{len(losses[name])} steps, last {losses[name][-1]:.6f}{same}"
        wide = not number and list(shown.values()).count(points) > 1
        lines.append(Line(name, "executed", number % PALETTE, path, facts, dashed=bool(number), wide=wide))
    above = tuple(Tick(one.at, f"{float(one.text.replace(',', '')) + base:g}") for one in ticks(top, 1, from_top=True))
    return Plot("Training loss", tuple(lines), ticks(right, 1), above, "training step", "loss")


def _finite(values: Sequence[float]) -> list[tuple[float, float]]:
    """Each step, counted from 1, whose loss is a finite number."""
    return [(float(step), value) for step, value in enumerate(values, 1) if math.isfinite(value)]


def _losses_of_rows(rows: Sequence[Row]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for row in rows:
        told = row.figures.get("losses")
        name = str(row.asked.get("policy", row.asked.get("style", "training")))
        if isinstance(told, list) and _numbers(told):
            found[name] = [float(value) for value in told]
        elif isinstance(told, list):
            found |= {f"rank {rank}": list(map(float, one)) for rank, one in enumerate(told) if _numbers(one)}
    return found


def _losses_of_files(found: Found) -> dict[str, list[float]]:
    """Those of a training under sessions, whose rows name none: a file for each policy."""
    losses: dict[str, list[float]] = {}
    budget = Budget(MOST_BYTES)
    for row in found.rows:
        name = str(row.asked.get("policy"))
        if "/" in name or name in losses:
            continue
        with contextlib.suppress(InvalidInput, KeyError, ValueError, TypeError, csv.Error):
            text = found.inside.text(f"losses/{name}.csv", budget)
            if text is not None:
                losses[name] = [float(line["loss"]) for line in csv.DictReader(io.StringIO(text))]
    return losses


def _numbers(values: Any) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(one, int | float) for one in values)


def lines_plot(
    lines: Mapping[str, Sequence[tuple[float, float]]], how: str, title: str, x_axis: str, y_axis: str
) -> Plot | None:
    """Curves of a sweep over one of its axes, from 0; None where none has two points."""
    shown = {name: sorted(points) for name, points in lines.items() if len({x for x, _ in points}) > 1}
    if not shown or len(shown) > MOST:
        return None
    right, high = (max(point[place] for points in shown.values() for point in points) for place in (0, 1))
    if not right > 0 or not high > 0:
        return None
    top = high * 1.06
    drawn = tuple(
        Line(name, how, number % PALETTE, curve(points, right, top, steps=False, finest=FINEST // STEPS))
        for number, (name, points) in enumerate(shown.items())
    )
    return Plot(title, drawn, ticks(right, 1), ticks(top, 1, from_top=True), x_axis, y_axis)
