"""Predicted lanes above executed ones, on one clock: computing, loads, what leaves, the host's updates."""

from collections.abc import Sequence
from typing import Any, cast

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from experiments.plots import STYLE, settled
from solvers.ir.report import Report

LANES = ("compute", "in", "out", "host")
COLOURS = {"compute": "#1f77b4", "in": "#2ca02c", "out": "#ff7f0e", "host": "#9467bd"}
NAMES = {"compute": "computes", "in": "from the host", "out": "to the host", "host": "the host updates"}
JOINED_US = 0.5
"""Spans with smaller gaps are drawn as one bar: hundreds of kernels make a picture that nobody can open."""


def lanes_figure(predicted: Report, executed: Report, title: str) -> Figure:
    """Both steps, each from its own beginning; one scale for both."""
    with rc_context(cast(Any, STYLE)):
        figure = Figure(figsize=(9.2, 3.6), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True)
        for axes, report in ((upper, predicted), (lower, executed)):
            for place, lane in enumerate(LANES):
                spans = [
                    (s.start_us, s.end_us) for s in report.spans if s.lane == f"0.{lane}" and s.end_us > s.start_us
                ]
                bars = [(start / 1e3, (end - start) / 1e3) for start, end in _joined(spans)]
                axes.broken_barh(bars, (place + 0.1, 0.8), facecolors=COLOURS[lane], lw=0)
            axes.set_yticks([place + 0.5 for place in range(len(LANES))], LANES)
            axes.invert_yaxis()
            axes.axvline(report.makespan_us / 1e3, color="black", lw=0.8, ls="--")
        upper.set(title=title, ylabel="predicted")
        lower.set(xlabel="virtual time (ms)", ylabel="executed")
        figure.legend(
            handles=[Patch(color=COLOURS[lane], label=NAMES[lane]) for lane in LANES],
            loc="outside lower right", ncols=len(LANES),
        )  # fmt: skip
        return settled(figure)


def _joined(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start - found[-1][1] < JOINED_US:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found
