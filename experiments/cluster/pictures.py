"""Pictures of lives: nodes and throughput over time, and how the first policy's throughput compares, life by life."""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.cluster.lives import Curves, Lives, curves_of
from experiments.plots import STYLE, settled

COLOURS = ("#1f3f66", "#4c9ed9", "#9cc9e8", "#e8963c", "#d62728", "#7b6fae", "#8c564b", "#17becf", "#4aa564")
WINDOWS = 180
BAND = (0.05, 0.95)


def lives_figure(lives: Lives, title: str, marks: Mapping[str, float]) -> Figure:
    """Three panels: nodes over time, throughput over time, and the distribution of the first policy's gain.

    Lines are means over the lives, bands reach from the 5th to the 95th percentile. `marks` are a paper's gains.
    """
    curves = {name: curves_of(lives, name, WINDOWS) for name in lives.runs}
    with rc_context(cast(Any, STYLE)):
        figure = Figure(figsize=(9.6, 9.6), layout="constrained")
        nodes, speed, gains = figure.subplots(3, 1, height_ratios=[1, 1.25, 0.9])
        _draw_nodes(nodes, curves)
        _draw_speed(speed, curves)
        _draw_gains(gains, lives, marks)
        figure.suptitle(title, fontsize=10.5, x=0.01, ha="left")
        return settled(figure)


def _draw_nodes(axes: Axes, curves: Mapping[str, Curves]) -> None:
    """Nodes alive are the same for all policies; those with a stage are not."""
    first = next(iter(curves.values()))
    low, high = (first.band("alive", share) for share in BAND)
    axes.fill_between(first.hours, low, high, color="#bbbbbb", alpha=0.4, lw=0)
    axes.plot(first.hours, first.mean("alive"), color="black", lw=2.2, label="alive")
    for number, (name, one) in enumerate(curves.items()):
        axes.plot(one.hours, one.mean("staged"), color=_colour(number), lw=1.2, label=name)
    axes.set(ylabel="nodes", title="Nodes alive, and those that each policy uses")
    _from_zero(axes)
    axes.legend(ncols=2, fontsize=8, loc="lower left")


def _draw_speed(axes: Axes, curves: Mapping[str, Curves]) -> None:
    for number, (name, one) in enumerate(curves.items()):
        colour = _colour(number)
        if number == 0:
            low, high = (one.band("samples_per_s", share) for share in BAND)
            axes.fill_between(one.hours, low, high, color=colour, alpha=0.15, lw=0)
        axes.plot(one.hours, one.mean("samples_per_s"), color=colour, lw=2 if number == 0 else 1.2, label=name)
    axes.set(ylabel="samples/s", xlabel="hours", title="Throughput, transitions and stops included")
    _from_zero(axes)


def _draw_gains(axes: Axes, lives: Lives, marks: Mapping[str, float]) -> None:
    others = [name for name in lives.runs if name != lives.first]
    for place, name in enumerate(others):
        pairs = zip(lives.throughputs(lives.first), lives.throughputs(name), strict=True)
        values = np.array([one / other for one, other in pairs if other > 0])
        if not values.size:
            continue
        low, middle, high = (float(np.quantile(values, share)) for share in (0.05, 0.5, 0.95))
        colour = _colour(list(lives.runs).index(name))
        axes.plot(values, np.full(values.size, place), ls="", marker="|", ms=9, color=colour, alpha=0.35)
        axes.plot([low, high], [place, place], color=colour, lw=2.5)
        axes.plot([middle], [place], marker="o", ms=6, color=colour)
        if name in marks:
            axes.plot([marks[name]], [place], marker="D", ms=7, ls="", mfc="none", mec="black", mew=1.3)
    axes.axvline(1.0, color="black", lw=0.8)
    if set(marks) & set(others):
        axes.plot([], [], marker="D", ls="", mfc="none", mec="black", label="the paper's single run")
        axes.legend(fontsize=8, loc="upper right")
    axes.set_yticks(range(len(others)), others)
    axes.set(
        xlabel=f"{lives.first}'s samples/s over",
        title="Gain, life by life: p5 to p95 and median",
        ylim=(len(others) - 0.5, -0.5),
    )


def _from_zero(axes: Axes) -> None:
    """Heights are comparable from zero on, unless all of them lie in the upper half."""
    low, high = axes.get_ylim()
    if low < high / 2:
        axes.set_ylim(0, high)


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]
