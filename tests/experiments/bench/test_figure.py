"""A figure as a line of the table."""

import pytest

from experiments.bench.figure import Figure, row


@pytest.mark.parametrize(
    ("figure", "line"),
    [
        (
            Figure("step", 1_320_468.4, "µs", 1.09649, "unlimited", "its plan"),
            ("step", "1320468 µs", "1.096 x unlimited", "its plan"),
        ),
        (Figure("search", 18.1949, "ms", None, "", "one run"), ("search", "18.19 ms", "", "one run")),
        (Figure("gap", 0.0, "%", 0.0, "goal of 1 %", "met"), ("gap", "0 %", "0.000 x goal of 1 %", "met")),
        (Figure("guard", None, "µs", None, "", "no build"), ("guard", "not measured", "", "no build")),
    ],
)
def test_a_line_has_four_digits_whole_microseconds_and_says_what_is_missing(
    figure: Figure, line: tuple[str, str, str, str]
) -> None:
    assert row(figure) == line
