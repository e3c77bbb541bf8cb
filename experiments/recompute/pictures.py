"""A rank's lanes: kernels, those of them that run while a collective does, and the collectives."""

from typing import Any, cast

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from experiments.plots import STYLE, settled
from experiments.recompute.figures import NS, spans_by_kind
from solvers.ir.report import Report

COLOURS = {"computes": "#1f77b4", "recomputes beside a collective": "#2ca02c", "communicates": "#ff7f0e"}
COMPUTES, BESIDE, TALKS = COLOURS
MARGIN_US = 1000.0


def windows_figure(report: Report, title: str, step_us: float) -> Figure:
    """Two lanes of the last step, where something runs beside a collective: kernels and exchanges."""
    computes, talks = spans_by_kind(report)
    beside = [span for span in computes if any(span[0] < end and start < span[1] for start, end in talks)]
    hidden = set(beside)
    since_us, until_us = _shown(beside, report.makespan_us - step_us, report.makespan_us)
    lanes = [(COMPUTES, 0, [span for span in computes if span not in hidden]), (BESIDE, 0, beside), (TALKS, 1, talks)]
    with rc_context(cast(Any, STYLE)):
        figure = Figure(figsize=(9.2, 2.2), layout="constrained")
        axes = figure.add_subplot()
        for what, lane, spans in lanes:
            bars = [
                (start / NS / 1e3, (end - start) / NS / 1e3)
                for start, end in spans
                if end / NS > since_us and start / NS < until_us
            ]
            axes.broken_barh(bars, (lane + 0.1, 0.8), facecolors=COLOURS[what], edgecolor="white", lw=0.2)
        axes.set_yticks([0.5, 1.5], ["kernels", "collectives"])
        axes.set_xlim(since_us / 1e3, until_us / 1e3)
        axes.invert_yaxis()
        axes.set(xlabel="virtual time (ms)", title=title)
        figure.legend(
            handles=[Patch(color=colour, label=what) for what, colour in COLOURS.items()],
            loc="outside lower right", ncols=3,
        )  # fmt: skip
        return settled(figure)


def _shown(beside: list[tuple[int, int]], since_us: float, until_us: float) -> tuple[float, float]:
    """The part of the last step with all that is hidden, and somewhat before and after; else the whole step."""
    last = [span for span in beside if span[0] / NS >= since_us]
    if not last:
        return since_us, until_us
    first_us, end_us = min(last)[0] / NS, max(last)[1] / NS
    return max(since_us, first_us - MARGIN_US), min(until_us, end_us + MARGIN_US)
