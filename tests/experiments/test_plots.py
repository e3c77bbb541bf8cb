"""Pictures: something on them, the right things, and the same bytes each time."""

from collections.abc import Callable

import pytest
from matplotlib.figure import Figure

from experiments.pictures import LANES, Bar, Curve, Line, Panel, joined
from experiments.plots import (
    lanes_figure,
    loss_figure,
    memory_figure,
    png_bytes,
    rounded,
    svg_text,
    sweep_figure,
)

MIB = 2**20
CURVE = Curve("milp-swap", ((0.0, MIB), (10.0, 3 * MIB), (20.0, 2 * MIB)), 30.0, 3 * MIB)
BARS = (Bar("0.compute", "forward", 0, 10), Bar("0.out", "swap_out", 5, 9), Bar("0.compute", "stall", 10, 20))


FIGURES: dict[str, Callable[[], Figure]] = {
    "memory": lambda: memory_figure([CURVE], 2 * MIB, "t"),
    "lanes": lambda: lanes_figure([Panel("milp-swap", BARS, 20.0)] * 2, LANES, "t"),
    "losses": lambda: loss_figure({"unlimited": [3.0, 2.0], "milp-swap": [3.0, 2.0]}, "t"),
    "sweep": lambda: sweep_figure([Line("a", "x", ((1, 2), (2, 1))), Line("b", "x", ((1, 1), (2, 1)))], "budget", "t"),
}


@pytest.mark.parametrize("name", FIGURES)
def test_svg_and_png_are_the_same_bytes_each_time(name: str) -> None:
    first, second = FIGURES[name](), FIGURES[name]()
    png, again = png_bytes(first), png_bytes(second)
    assert png == again and len(png) > 5000
    svg, same = svg_text(first), svg_text(second)  # drawing a PNG before must not change the SVG
    assert svg == same
    assert "<dc:date>" not in svg


def test_pictures_say_boxes_by_their_corners() -> None:
    path = '<path d="M 1.5 2\nL 1.5 7.123\nL 4 7.123\nL 4 2\nz\nM 0 0\nL 1 1\n" x="5.6789"/>'
    assert rounded(path) == '<path d="M1.5 2V7.12H4V2zM0 0L1 1" x="5.68"/>'


def test_every_picture_names_its_axes() -> None:
    for figure in FIGURES.values():
        assert figure().axes[-1].get_xlabel()
    memory = FIGURES["memory"]().axes[0]
    assert "ms" in memory.get_xlabel() and "MiB" in memory.get_ylabel()


def test_the_budget_is_a_line_and_each_curve_has_a_name() -> None:
    axes = FIGURES["memory"]().axes[0]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "milp-swap: peak 3.0 MiB, 0.03 ms",
        "budget: 2.0 MiB",
    ]


def legend_title(figure: Figure) -> list[str]:
    legend = figure.legends[0] if figure.legends else figure.axes[0].get_legend()
    assert legend is not None
    return legend.get_title().get_text().splitlines()


def test_the_legend_says_why_a_policy_is_not_drawn() -> None:
    absent = ["none: out of memory, it needs $2 more", f"greedy-swap: {'word ' * 200}"]
    for figure in (
        memory_figure([CURVE], 2 * MIB, "t", absent=absent),
        lanes_figure([Panel("milp-swap", BARS, 20.0)], LANES, "t", absent=absent),
    ):
        first, *rest = legend_title(figure)
        assert first == r"none: out of memory, it needs \$2 more"  # no formula begins there
        assert len(rest) == 2 and rest[0].startswith("greedy-swap: word word") and rest[1].endswith("word …")
        assert len(png_bytes(figure)) > 5000
    assert legend_title(memory_figure([CURVE], 2 * MIB, "t")) == []


def test_a_long_title_goes_on_in_a_second_line() -> None:
    title = f"Device memory during one step of {'a_package.' * 3}training:build (sim-executed, hardware sim-small)"
    figure = memory_figure([CURVE], 2 * MIB, title)
    assert figure.axes[0].get_title(loc="left").count("\n") == 1
    assert figure.axes[0].get_title(loc="left").replace("\n", " ") == title
    assert "\n" not in FIGURES["memory"]().axes[0].get_title(loc="left")


def test_kernels_that_follow_each_other_are_one_bar_and_transfers_stay_apart() -> None:
    kernels = [Bar("0.compute", "forward", start, start + 4.9) for start in (0, 5, 10)]
    transfers = [Bar("0.out", "swap_out", start, start + 5) for start in (0, 5)]
    assert joined([*kernels, *transfers], within_us=0.2) == [
        Bar("0.compute", "forward", 0, 14.9),
        *transfers,
    ]
    assert joined(kernels, within_us=0.05) == kernels
