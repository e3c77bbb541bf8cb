"""Pictures: something on them, the right things, and the same bytes each time."""

import pytest
from matplotlib.figure import Figure

from experiments.pictures import LANES
from experiments.plots import (
    Bar,
    Curve,
    Line,
    Panel,
    joined,
    lanes_figure,
    loss_figure,
    memory_figure,
    png_bytes,
    svg_text,
    sweep_figure,
)

MIB = 2**20
CURVE = Curve("milp-swap", ((0.0, MIB), (10.0, 3 * MIB), (20.0, 2 * MIB)), 30.0, 3 * MIB)
BARS = (Bar("0.compute", "forward", 0, 10), Bar("0.out", "swap_out", 5, 9), Bar("0.compute", "stall", 10, 20))


def figures() -> dict[str, Figure]:
    return {
        "memory": memory_figure([CURVE], 2 * MIB, "t"),
        "lanes": lanes_figure([Panel("milp-swap", BARS, 20.0)] * 2, LANES, "t"),
        "losses": loss_figure({"unlimited": [3.0, 2.0], "milp-swap": [3.0, 2.0]}, "t"),
        "sweep": sweep_figure([Line("a", "x", ((1, 2), (2, 1))), Line("b", "x", ((1, 1), (2, 1)))], "budget", "t"),
    }


@pytest.mark.parametrize("name", ["memory", "lanes", "losses", "sweep"])
def test_svg_and_png_are_the_same_bytes_each_time(name: str) -> None:
    first, second = figures()[name], figures()[name]
    assert png_bytes(first) == png_bytes(second)  # drawing a PNG before must not change the SVG
    assert svg_text(first) == svg_text(second)
    assert "<dc:date>" not in svg_text(first)
    assert len(png_bytes(first)) > 5000


def test_every_picture_names_its_axes() -> None:
    for figure in figures().values():
        assert figure.axes[-1].get_xlabel()
    assert "ms" in figures()["memory"].axes[0].get_xlabel() and "MiB" in figures()["memory"].axes[0].get_ylabel()


def test_the_budget_is_a_line_and_each_curve_has_a_name() -> None:
    axes = figures()["memory"].axes[0]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "milp-swap: peak 3.0 MiB, 0.03 ms",
        "budget: 2.0 MiB",
    ]


def test_kernels_that_follow_each_other_are_one_bar_and_transfers_stay_apart() -> None:
    kernels = [Bar("0.compute", "forward", start, start + 4.9) for start in (0, 5, 10)]
    transfers = [Bar("0.out", "swap_out", start, start + 5) for start in (0, 5)]
    assert joined([*kernels, *transfers], within_us=0.2) == [
        Bar("0.compute", "forward", 0, 14.9),
        *transfers,
    ]
    assert joined(kernels, within_us=0.05) == kernels
