"""The lanes of all ranks: what computes, what communicates, and the gaps between them."""

from collections.abc import Sequence
from typing import Any, cast

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from experiments.plots import STYLE, settled
from runtime.ranks.report import COMMUNICATION
from solvers.ir.report import Report

COLOURS = {"computes": "#1f77b4", "communicates": "#ff7f0e"}
JOINED_US = 0.5
"""Kernels with smaller gaps are drawn as one bar: thousands of them make a picture that nobody can open."""


def ranks_figure(reports: Sequence[Report], title: str, since_us: float) -> Figure:
    """Two lanes a rank from a moment on, its kernels and its operations between ranks."""
    with rc_context(cast(Any, STYLE)):
        figure = Figure(figsize=(9.2, 0.9 + 0.55 * len(reports)), layout="constrained")
        axes = figure.add_subplot()
        for rank, report in enumerate(reports):
            for offset, (what, colour) in enumerate(COLOURS.items()):
                talks = what == "communicates"
                spans = [
                    (span.start_us, span.end_us)
                    for span in report.spans
                    if span.lane.startswith(COMMUNICATION) is talks and span.end_us > since_us
                ]
                bars = [(start / 1e3, (end - start) / 1e3) for start, end in _joined(spans, since_us)]
                axes.broken_barh(bars, (rank + 0.1 + 0.4 * offset, 0.36), facecolors=colour, lw=0)
        axes.set_yticks([rank + 0.48 for rank in range(len(reports))], [f"rank {rank}" for rank in range(len(reports))])
        axes.invert_yaxis()
        axes.set(xlabel="virtual time (ms)", title=title)
        figure.legend(
            handles=[Patch(color=colour, label=what) for what, colour in COLOURS.items()],
            loc="outside lower right", ncols=2,
        )  # fmt: skip
        return settled(figure)


def _joined(spans: Sequence[tuple[float, float]], since_us: float) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        start = max(start, since_us)
        if found and start - found[-1][1] < JOINED_US:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found
