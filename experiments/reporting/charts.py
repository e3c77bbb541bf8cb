"""Pictures as numbers: what the page's templates draw as SVG that re-flows, all sizes in shares of the picture."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

KINDS = {
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "compute": "computes",
    "recompute": "recomputes",
    "comm": "communicates",
    "swap_in": "from the host",
    "swap_out": "to the host",
    "host": "the host updates",
    "stall": "waits",
}
"""What a bar can be, and its name in a legend; the page's style gives each its colour."""
FINEST = 4000
"""Bars of a lane that can be told apart at most: about the pixels of a wide screen."""
PALETTE = 10
"""Colours of curves, after which they begin again."""


@dataclass(frozen=True)
class Tick:
    """A mark of an axis: where, in percent, and what it says."""

    at: float
    text: str


@dataclass(frozen=True)
class Shape:
    """All bars of one kind in one lane, as one path in a box of `FINEST` by 1."""

    kind: str
    path: str


@dataclass(frozen=True)
class Strip:
    """One lane."""

    name: str
    shapes: tuple[Shape, ...]


@dataclass(frozen=True)
class Panel:
    """The lanes of one step; `how` says whether it was simulated or executed, `end` where it ends, in percent."""

    title: str
    how: str
    facts: str
    strips: tuple[Strip, ...]
    end: float


@dataclass(frozen=True)
class Lanes:
    """Panels on one time axis."""

    title: str
    panels: tuple[Panel, ...]
    ticks: tuple[Tick, ...]
    axis: str
    legend: tuple[str, ...]


@dataclass(frozen=True)
class Line:
    """A curve in a box of 1000 by 1000; others may lie on a wide one."""

    name: str
    how: str
    colour: int
    path: str
    facts: str = ""
    dashed: bool = False
    wide: bool = False


@dataclass(frozen=True)
class Plot:
    """Curves over an axis; `rule` is a line across (a budget): how high, in percent from the top, and its name."""

    title: str
    lines: tuple[Line, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    x_axis: str
    y_axis: str
    rule: Tick | None = None


@dataclass(frozen=True)
class Segment:
    """A part of a stacked bar: its kind, its name, its width in percent of the longest bar, and its figure."""

    kind: str
    name: str
    width: float
    figure: str


@dataclass(frozen=True)
class Stack:
    """One bar of parts that add up to `total`."""

    name: str
    how: str
    segments: tuple[Segment, ...]
    total: str


@dataclass(frozen=True)
class Cell:
    """A cell of a table of colours: its text, and how deep its colour is, from 0 to 1; None: none."""

    text: str
    depth: float | None = None


@dataclass(frozen=True)
class Heat:
    """A table whose cells are coloured by their values."""

    title: str
    head: tuple[str, ...]
    body: tuple[tuple[Cell, ...], ...]
    note: str


def bars(spans: Iterable[tuple[float, float]], begin: float, end: float, finest: int) -> str:
    """Spans between two moments as a path of bars, those closer than can be seen as one."""
    scale = finest / (end - begin) if end > begin else 0.0
    found: list[list[int]] = []
    for start, stop in sorted(spans):
        left = math.floor((max(start, begin) - begin) * scale)
        right = max(left + 1, math.ceil((min(stop, end) - begin) * scale))
        if found and left <= found[-1][1]:
            found[-1][1] = max(found[-1][1], right)
        else:
            found.append([left, right])
    factor = FINEST // finest
    return "".join(f"M{left * factor} 0h{(right - left) * factor}v1H{left * factor}z" for left, right in found)


def curve(points: Sequence[tuple[float, float]], right: float, top: float, *, steps: bool, finest: int) -> str:
    """Points as a path in a box of 1000 by 1000 whose right edge and top are these values; thinned where dense.

    `steps`: each value holds until the next point. Of points too close to be told apart the lowest and the highest are
    drawn, so no peak is lost.
    """
    kept = _thinned(points, right, finest)
    places = [(_share(x, right) * 1000, 1000 - _share(y, top) * 1000) for x, y in kept]
    if not places:
        return ""
    text = f"M{places[0][0]:.1f} {places[0][1]:.1f}"
    for x, y in places[1:]:
        text += f"H{x:.1f}V{y:.1f}" if steps else f"L{x:.1f} {y:.1f}"
    return text


def _thinned(points: Sequence[tuple[float, float]], right: float, finest: int) -> list[tuple[float, float]]:
    if len(points) <= 2 * finest:
        return list(points)
    columns: dict[int, list[tuple[float, float]]] = {}
    for point in points:
        columns.setdefault(int(_share(point[0], right) * finest), []).append(point)
    kept: list[tuple[float, float]] = []
    for inside in columns.values():
        extremes = {min(inside, key=lambda one: one[1]), max(inside, key=lambda one: one[1]), inside[-1]}
        kept += sorted(extremes)
    return kept


def ticks(most: float, scale: float, *, from_top: bool = False, most_ticks: int = 6) -> tuple[Tick, ...]:
    """Round values from 0 to `most`, written in units of `scale`; in percent from the left, or from the top."""
    if not most > 0 or not math.isfinite(most):
        return (Tick(100.0 if from_top else 0.0, "0"),)
    step = _round_step(most / scale / most_ticks)
    count = int(most / scale / step + 1e-9)
    found = []
    for number in range(count + 1):
        at = 100 * number * step * scale / most
        found.append(Tick(round(100 - at if from_top else at, 2), f"{round(number * step, 12):,g}"))
    return tuple(found)


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def _share(value: float, whole: float) -> float:
    return min(max(value / whole, 0.0), 1.0) if whole > 0 else 0.0
