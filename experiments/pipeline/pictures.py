"""Pictures of pipelines: throughput of the systems as bars, and the passes of every stage over time."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from experiments.grid import Grid
from experiments.pipeline.settings import ComposedPipeline
from experiments.pipeline.simulate import Step
from experiments.plots import STYLE, png_bytes, settled, svg_text
from experiments.tables import shown
from solvers.ir import Row
from solvers.timeline import PipelineTimes

PASSES = {
    "forward": ("#4c9ed9", "forward"),
    "backward": ("#1f5f99", "backward"),
    "recompute": ("#e8963c", "recomputation that delays its stage"),
}
COLOURS = ("#9aa3ab", "#c9a227", "#4aa564", "#9cc9e8", "#4c9ed9", "#7b6fae", "#8c564b", "#1f3f66", "#17becf")
LOST = "#d62728"
MOST_PANELS = 12
"""More are no picture any more."""


def bars_figure(panels: Mapping[str, Mapping[str, Mapping[str, float | None]]], title: str) -> Figure:
    """Throughput: panel → configuration → system → samples/s; a cross where a system is out of memory.

    Each configuration has its own scale, its fastest system being 1: models differ by a factor of ten.
    """
    widest = max(len(values) for values in panels.values())
    systems = list(dict.fromkeys(name for values in panels.values() for found in values.values() for name in found))
    with rc_context(cast(Any, STYLE)):
        size = (max(6.0, 2.6 + 0.1 * len(systems) * widest), 0.9 + 2.6 * len(panels))
        figure = Figure(figsize=size, layout="constrained")
        rows = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
        for axes, (name, values) in zip(rows, panels.items(), strict=True):
            _draw_bars(axes, values, systems)
            axes.set(ylabel="over the fastest", title=name, ylim=(0, 1.06), xlim=(-0.6, widest - 0.4))
        figure.legend(*rows[0].get_legend_handles_labels(), loc="outside right center")
        figure.suptitle(title, fontsize=10.5, x=0.01, ha="left")
        return settled(figure)


def _draw_bars(axes: Axes, values: Mapping[str, Mapping[str, float | None]], systems: Sequence[str]) -> None:
    labels, width = list(values), 0.86 / len(systems)
    for number, system in enumerate(systems):
        places = np.arange(len(labels)) + (number - (len(systems) - 1) / 2) * width
        heights = [_relative(values[label], system) for label in labels]
        colour = COLOURS[number % len(COLOURS)]
        axes.bar(places, [height or 0.0 for height in heights], width * 0.94, color=colour, label=system)
        lost = [place for place, height in zip(places, heights, strict=True) if height is None]
        axes.plot(lost, [0.03] * len(lost), ls="", marker="x", ms=4, mew=1.2, color=LOST)
    axes.plot([], [], ls="", marker="x", ms=4, mew=1.2, color=LOST, label="out of memory")
    axes.set_xticks(range(len(labels)), [label.replace(" ", "\n") for label in labels])


def _relative(found: Mapping[str, float | None], system: str) -> float | None:
    value, best = found.get(system), max((one for one in found.values() if one is not None), default=None)
    return None if value is None or best is None else value / best


def pipelines_figure(steps: Mapping[str, Step], title: str) -> Figure:
    """Every pass of every stage of one step, a panel for each system, on one time axis; white is a bubble."""
    with rc_context(cast(Any, STYLE)):
        figure = Figure(figsize=(9.6, 0.8 + len(steps) * (0.5 + 0.24 * _deepest(steps))), layout="constrained")
        rows = figure.subplots(len(steps), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (name, step) in zip(rows, steps.items(), strict=True):
            _draw_step(axes, step.times)
            axes.set_title(f"{name}: layers {'-'.join(map(str, step.layers))}, {step.samples_per_s:.2f} samples/s")
        longest = max(step.makespan_us for step in steps.values())
        rows[-1].set(xlabel="time since the step began (s)", xlim=(0, longest / 1e6 * 1.005))
        patches = [Patch(color=colour, label=label) for colour, label in PASSES.values()]
        figure.legend(handles=patches, loc="outside lower center", ncols=len(patches))
        figure.suptitle(title, fontsize=10.5, x=0.01, ha="left")
        return settled(figure)


def _deepest(steps: Mapping[str, Step]) -> int:
    return max(len(step.stages) for step in steps.values())


def _draw_step(axes: Axes, times: PipelineTimes) -> None:
    spans = {
        "forward": (times.forward_start_us, times.forward_end_us),
        "backward": (times.backward_start_us, times.backward_end_us),
        "recompute": (times.recompute_start_us, times.recompute_end_us),
    }
    for kind, (start, end) in spans.items():
        for stage in range(times.stages):
            bars = _bars(start[stage].tolist(), end[stage].tolist())
            axes.broken_barh(bars, (stage - 0.4, 0.8), facecolors=PASSES[kind][0], edgecolor="white", linewidth=0.25)
    axes.axvline(float(times.makespan_us) / 1e6, color="black", lw=0.8)
    axes.set_yticks(range(times.stages), [f"stage {stage}" for stage in range(times.stages)])
    axes.set_ylim(times.stages - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)


def _bars(start: Sequence[int], end: Sequence[int]) -> list[tuple[float, float]]:
    return [(a / 1e6, (b - a) / 1e6) for a, b in zip(start, end, strict=True) if b > a]


def draw_sweep(grid: Grid[ComposedPipeline], rows: Sequence[Row]) -> None:
    """Throughput of every cell and system as bars, a panel for each value of the first axis.

    Where that has more than `MOST_PANELS` values, the axis with the fewest takes its place, if it has not more.
    """
    counts = {axis: len({str(row.asked.get(axis)) for row in rows}) for axis in grid.axes}
    axes = grid.axes
    if axes and counts[axes[0]] > MOST_PANELS:
        axes = sorted(axes, key=lambda axis: counts[axis])
        if counts[axes[0]] > MOST_PANELS:
            return
    panels: dict[str, dict[str, dict[str, float | None]]] = {}
    for row in rows:
        if row.outcome in ("ok", "infeasible"):
            first, *rest = [shown(row.asked.get(axis)) for axis in axes] or ["all"]
            cell = panels.setdefault(first, {}).setdefault(" ".join(rest), {})
            cell[str(row.asked["policy"])] = row.figures.get("samples_per_s")
    if not panels:
        return
    figure = bars_figure(panels, f"{grid.name}: throughput, simulated")
    grid.directory.text("throughput.svg", svg_text(figure))
    grid.directory.binary("throughput.png", png_bytes(figure))
