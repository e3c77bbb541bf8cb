"""Pictures of two entries from the rows that `bayplan table protrain --out FOLDER` keeps.

`python -m experiments.protrain.pictures FOLDER` draws the gains of a freer layout and where swapping becomes faster.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import matplotlib
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.plots import STYLE, png_bytes, settled, svg_text
from experiments.protrain.blocks import ROOMY
from experiments.protrain.freedom import FREER
from experiments.reproduction.entry import read_entry
from experiments.rows import read_rows
from solvers.ir import InvalidInput

PERCENT = 100
Values = Mapping[str, Any]
"""The figures of a cell by name."""
Drawn = Sequence[tuple[Values, Values]]
"""Keys and values of an entry's cells, in their order."""


def freedom_figure(cells: Drawn, links: Mapping[str, float]) -> Figure:
    """How much longer the search's step is than the best layout found (lines), and at most (upper ends of bars)."""
    cases = list(dict.fromkeys(str(key["case"]) for key, _ in cells))
    even = [case for case in cases if not _is_uneven(case)]
    with rc_context(cast(Any, STYLE)):
        figure = Figure(figsize=(9.6, 4.6), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        groups = {"Layers alike": even, "Uneven layers, little host memory": [one for one in cases if one not in even]}
        for axes, (title, group) in zip(panels, groups.items(), strict=True):
            for number, case in enumerate(group):
                own = {str(key["link"]): values for key, values in cells if key["case"] == case}
                _draw_gain(axes, case, number, [(links[link], values) for link, values in own.items()])
            axes.set_title(title)
            _link_axis(axes, {f"{link}\n{rate:g}": rate for link, rate in links.items()})
            axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.24))
        panels[0].set_ylabel("the paper's space takes longer (%)")
        figure.suptitle(
            "than the best layout found (points), and at most (bars: the bound)", fontsize=9.5, x=0.01, ha="left"
        )
        panels[0].set_ylim(bottom=-0.3)
        return settled(figure)


def _is_uneven(case: str) -> bool:
    return case.startswith(("uneven", "little"))


def _draw_gain(axes: Axes, case: str, number: int, points: Sequence[tuple[float, Values]]) -> None:
    """Neighbours are moved apart by a hair, so that their bars do not hide each other."""
    colour = matplotlib.colormaps["tab10"](number)
    found = [(rate, values) for rate, values in points if values["search"] is not None]
    rates = [rate * (1 + 0.03 * (number - 2)) for rate, _ in found]
    low, high = ([PERCENT * (values["search"] / values[name] - 1) for _, values in found] for name in (FREER, "bound"))
    axes.plot(rates, low, marker="o", ms=4, lw=1.4, color=colour, label=case.removeprefix("uneven: "))
    axes.vlines(rates, low, high, color=colour, lw=1.1, alpha=0.6)
    axes.plot(rates, high, marker="_", ms=7, lw=0, color=colour, alpha=0.6)


def crossing_figure(cells: Drawn) -> Figure:
    """Times of a block above, blocks that the search swaps below, over the rate of the link, by machine."""
    machines = list(dict.fromkeys(str(key["machine"]) for key, _ in cells))
    with rc_context(cast(Any, STYLE)):
        figure = Figure(figsize=(9.6, 5.6), layout="constrained")
        rows = figure.subplots(2, len(machines), sharex=True, sharey="row", squeeze=False)
        for column, machine in enumerate(machines):
            points = [(float(key["GB/s"]), values) for key, values in cells if key["machine"] == machine]
            _draw(rows[0, column], points, {"swapping a block": "-", "computing it again": "--"})
            rows[0, column].set(yscale="log", title=f"{machine}: times of a block")
            _draw(rows[1, column], points, {"swapped": "-", f"swapped, {ROOMY}": "--", f"checkpointed, {ROOMY}": ":"})
            rows[1, column].set(title=f"{machine}: blocks that the search swaps, checkpoints")
            _link_axis(rows[1, column], {f"{rate:g}": rate for rate, _ in points})
        rows[0, 0].set_ylabel("s")
        rows[1, 0].set_ylabel("blocks")
        rows[0, 0].legend(fontsize=8)
        rows[1, 0].legend(fontsize=8)
        return settled(figure)


def _draw(axes: Axes, points: Sequence[tuple[float, Values]], styles: Mapping[str, str]) -> None:
    for number, (name, style) in enumerate(styles.items()):
        colour = matplotlib.colormaps["tab10"](number)
        values = [found[name] for _, found in points]
        axes.plot([rate for rate, _ in points], values, style, marker="o", ms=3.5, color=colour, label=name)
    axes.grid(color="#e5e5e5", lw=0.7)


def _link_axis(axes: Axes, ticks: Mapping[str, float]) -> None:
    axes.set_xscale("log")
    axes.set_xticks(list(ticks.values()), [*ticks])
    axes.minorticks_off()
    axes.set_xlabel("link to the host, 10⁹ bytes/s a direction, logarithmic")
    axes.grid(color="#e5e5e5", lw=0.7)


def drawn(folder: Path, name: str) -> list[tuple[Values, Values]]:
    """The cells of an entry that has been written there; raises `InvalidInput` where one failed or none is there."""
    rows = [row for row in read_rows(folder / f"{name}.jsonl") if "cell" in row.asked]
    failed = next((row.reason for row in rows if row.outcome != "ok"), None)
    if failed is not None or not rows:
        raise InvalidInput(f"{name} has no whole result ({failed or 'no cell'}): compute it again")
    return [(row.asked["cell"], row.figures["value"]) for row in rows]


FIGURES: dict[str, Callable[[Path, str], Figure]] = {
    "protrain-freedom": lambda folder, name: freedom_figure(drawn(folder, name), read_entry(name).parameters["links"]),
    "protrain-crossing": lambda folder, name: crossing_figure(drawn(folder, name)),
}


def main() -> None:
    """Draw beside the rows, as SVG and PNG."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where `bayplan table protrain --out FOLDER` wrote")
    folder = parser.parse_args().folder
    for name, draw in FIGURES.items():
        figure = draw(folder, name)
        (folder / f"{name}.svg").write_text(svg_text(figure))
        (folder / f"{name}.png").write_bytes(png_bytes(figure))


if __name__ == "__main__":
    main()
