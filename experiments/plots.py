"""Pictures of memory over time and of the lanes; the same input gives the same bytes."""

import io
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, cast

import matplotlib

matplotlib.use("Agg")

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from PIL import Image

from experiments.pictures import Curve, Line, Panel

MIB = 2**20
STYLE: dict[str, Any] = {
    "svg.hashsalt": "bayplan",  # ids in an SVG are random without it
    "svg.fonttype": "none",  # text as text: found by a search, and half the bytes
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "figure.dpi": 100,
}
COLOURS = {
    "unlimited": "#7f7f7f",
    "recompute": "#9467bd",
    "greedy-swap": "#ff7f0e",
    "milp-swap": "#1f77b4",
    "joint": "#2ca02c",
}
"""Policies keep their colours from picture to picture."""
OTHER_COLOURS = ("#2ca02c", "#8c564b", "#17becf", "#bcbd22")
BARS = {
    "forward": ("#4c9ed9", "forward"),
    "backward": ("#1f5f99", "backward"),
    "optimizer": ("#7b6fae", "optimizer"),
    "recompute": ("#c46fae", "recompute"),
    "swap_out": ("#e8963c", "swap out"),
    "swap_in": ("#4aa564", "swap in"),
    "stall": ("#d62728", "stall"),
}
"""What a bar in a lane is: its colour and its name in the legend."""


TITLE_WIDTH = 96
"""Letters of a title's line: one's own factory may have a long name."""
WIDTH, LINES = 118, 2
"""Letters of a line, and lines of a sentence, in a legend."""
PLACES, DECIMALS = re.compile(r'\b[dxy]="[^"]*"|translate\([^)]*\)'), re.compile(r"-?\d+\.\d{3,}")
PATH = re.compile(r'\bd="[^"]*"')
SPACES, BOX = re.compile(r'\s*([MLQCHVz"])\s*'), re.compile(r"M(\S+) (\S+)L\1 (\S+)L(\S+) \3L\4 \2z")
"""Where an SVG tells places, and those with more decimals than anyone sees."""


def memory_figure(curves: Sequence[Curve], budget_bytes: int, title: str, *, absent: Sequence[str] = ()) -> Figure:
    """Memory in use during one step, a curve for each policy, with the budget as a line.

    `absent` are sentences on policies without a curve, which stand in the legend.
    """
    with rc_context(cast(Any, STYLE)):
        figure = Figure(figsize=(8.6, 3.9), layout="constrained")
        axes = figure.add_subplot()
        for number, curve in enumerate(curves):
            times = [time / 1e3 for time, _ in curve.points] + [curve.end_us / 1e3]
            sizes = [size / MIB for _, size in curve.points]
            label = f"{curve.name}: peak {curve.peak_bytes / MIB:.1f} MiB, {curve.end_us / 1e3:.2f} ms"
            colour = _colour(curve.name, number)
            axes.step(times, [*sizes, *sizes[-1:]], where="post", lw=1.5, color=colour, label=label)
        line = budget_bytes / MIB
        axes.axhline(line, color="#d62728", lw=1.2, ls=(0, (6, 3)), label=f"budget: {line:.1f} MiB")
        axes.set(xlabel="virtual time since the step began (ms)", ylabel="device memory in use (MiB)")
        axes.set_title(textwrap.fill(title, TITLE_WIDTH))
        axes.set_xlim(left=0)
        top = max([line, *(curve.peak_bytes / MIB for curve in curves)])
        axes.set_ylim(0, top * 1.06)
        axes.grid(axis="y", color="#e5e5e5", lw=0.7)
        axes.set_axisbelow(True)
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.2), ncols=2, borderaxespad=0, **_told(absent))
        return settled(figure)


def lanes_figure(panels: Sequence[Panel], lanes: Sequence[str], title: str, *, absent: Sequence[str] = ()) -> Figure:
    """What each lane does over time, a panel for each policy, on one time axis; `absent` as in `memory_figure`."""
    with rc_context(cast(Any, STYLE)):
        figure = Figure(figsize=(8.6, 0.9 + 1.45 * len(panels)), layout="constrained")
        rows = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axes, panel in zip(rows, panels, strict=True):
            _draw_panel(axes, panel, lanes)
        rows[-1].set_xlabel("virtual time since the step began (ms)")
        rows[-1].set_xlim(0, max(panel.end_us for panel in panels) / 1e3 * 1.005)
        used = [kind for kind in BARS if any(bar.kind == kind for panel in panels for bar in panel.bars)]
        patches = [Patch(color=BARS[kind][0], label=BARS[kind][1]) for kind in used]
        figure.legend(handles=patches, loc="outside lower center", ncols=len(patches), **_told(absent))
        figure.suptitle(textwrap.fill(title, TITLE_WIDTH), fontsize=10.5, x=0.01, ha="left")
        return settled(figure)


def loss_figure(losses: Mapping[str, Sequence[float]], title: str, name: str = "loss (nats per byte)") -> Figure:
    """A curve of losses for each policy; equal ones lie on top of each other, so later ones are dashed."""
    with rc_context(cast(Any, STYLE)):
        figure = Figure(figsize=(8.6, 3.4), layout="constrained")
        axes = figure.add_subplot()
        for number, (name, values) in enumerate(losses.items()):
            style: dict[str, Any] = {"lw": 1.6, "ls": (0, (4, 2 + 2 * number))} if number else {"lw": 4, "alpha": 0.45}
            axes.plot(range(1, len(values) + 1), values, color=_colour(name, number), label=name, **style)
        axes.set(xlabel="training step", ylabel=name, title=title)
        axes.grid(axis="y", color="#e5e5e5", lw=0.7)
        axes.legend(loc="upper right")
        return settled(figure)


def sweep_figure(lines: Sequence[Line], axis: str, title: str) -> Figure:
    """Step time over the unlimited one; a colour for each group, the last policy as solid lines."""
    groups = list(dict.fromkeys(line.group for line in lines))
    policies = list(dict.fromkeys(line.policy for line in reversed(lines)))
    with rc_context(cast(Any, STYLE)):
        figure = Figure(figsize=(8.6, 3.9), layout="constrained")
        axes = figure.add_subplot()
        colours = matplotlib.colormaps["viridis"]
        for line in lines:
            axes.plot(
                *zip(*line.points, strict=True),
                color=colours(0.9 * groups.index(line.group) / max(1, len(groups) - 1)),
                ls=("-", "--", ":", "-.")[policies.index(line.policy) % 4],
                marker="o",
                ms=3.5,
                lw=1.4,
                label=f"{line.policy}, {line.group}",
            )
        axes.set(xlabel=axis, ylabel="step time over unlimited", title=title)
        axes.grid(color="#e5e5e5", lw=0.7)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
        return settled(figure)


def svg_text(figure: Figure) -> str:
    """The figure as SVG, the same bytes each time; places to a hundredth of a point, for pictures are kept."""
    with rc_context(cast(Any, STYLE)):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
        return rounded(buffer.getvalue())


def rounded(svg: str) -> str:
    """Paths and places in points with two decimals at most; paths without spaces around commands, boxes by corners."""
    short = PLACES.sub(lambda places: DECIMALS.sub(lambda one: f"{float(one[0]):.2f}", places[0]), svg)
    return PATH.sub(lambda path: BOX.sub(r"M\1 \2V\3H\4V\2z", SPACES.sub(r"\1", path[0])), short)


def png_bytes(figure: Figure) -> bytes:
    """The figure as PNG in at most 128 colours: a third of the bytes, for pictures are kept with the sources."""
    drawn, kept = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=130, metadata={"Software": None})
    palette = Image.open(drawn).convert("RGB").quantize(128, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    palette.save(kept, "PNG", optimize=True)
    return kept.getvalue()


def _told(absent: Sequence[str]) -> dict[str, Any]:
    """A legend's title that says of each absent policy why: at most `LINES` lines each."""
    if not absent:
        return {}
    lines = [line for sentence in absent for line in _wrapped(sentence)]
    return {"title": "\n".join(lines), "alignment": "left", "title_fontsize": 8.5}


def _wrapped(sentence: str) -> list[str]:
    """A sentence in lines of the figure's width, cut after `LINES`; a `$` begins no formula."""
    return textwrap.wrap(
        sentence.replace("$", r"\$"), WIDTH, max_lines=LINES, placeholder=" …", subsequent_indent="   "
    )


def _colour(name: str, number: int) -> str:
    return COLOURS.get(name, OTHER_COLOURS[number % len(OTHER_COLOURS)])


def settled(figure: Figure) -> Figure:
    """The layout computed once: each further pass would shift it by a hair, and change the bytes."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def _draw_panel(axes: Axes, panel: Panel, lanes: Sequence[str]) -> None:
    for kind, (colour, _) in BARS.items():
        for number, lane in enumerate(lanes):
            spans = [
                (bar.start_us / 1e3, (bar.end_us - bar.start_us) / 1e3)
                for bar in panel.bars
                if bar.kind == kind and bar.lane == lane
            ]
            # A white edge tells one transfer from the next.
            edge = {"edgecolor": "white", "linewidth": 0.4} if kind.startswith("swap") else {"linewidth": 0}
            axes.broken_barh(spans, (number - 0.38, 0.76), facecolors=colour, **edge)
    axes.axvline(panel.end_us / 1e3, color="black", lw=0.8)
    axes.set_yticks(range(len(lanes)), [lane.partition(".")[2] for lane in lanes])
    axes.set_ylim(len(lanes) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.set_title(panel.title)
