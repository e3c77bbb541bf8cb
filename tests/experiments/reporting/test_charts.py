"""Geometry of pictures: bars that are joined only where nobody could tell them apart, curves that keep their peaks."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.reporting.charts import FINEST, bars, curve, ticks


def test_bars_stand_where_their_spans_are() -> None:
    assert bars([(0, 25), (50, 100)], 0, 100, FINEST) == "M0 0h1000v1H0zM2000 0h2000v1H2000z"
    assert bars([(60, 80)], 50, 100, FINEST) == "M800 0h1600v1H800z"  # from where the picture begins
    assert bars([(0, 10), (10, 20)], 0, 100, FINEST) == "M0 0h800v1H0z"
    assert bars([], 0, 100, FINEST) == "" and bars([(0, 0)], 0, 0, FINEST) == "M0 0h1v1H0z"


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(0, 1000)), max_size=40))
def test_bars_never_overlap_and_never_leave_the_picture(spans: list[tuple[float, float]]) -> None:
    found = bars([(min(span), max(span)) for span in spans], 0, 1000, FINEST // 4)
    places = [(int(left), int(left) + int(width)) for left, width in re.findall(r"M(\d+) 0h(\d+)", found)]
    assert all(0 <= left < right <= FINEST + 4 for left, right in places)
    assert all(one[1] < other[0] for one, other in pairwise(places))


def test_a_thinned_curve_keeps_its_peak() -> None:
    points = [(float(at), 10.0 if at == 77_777 else 1.0) for at in range(100_000)]
    path = curve(points, 100_000, 10, steps=True, finest=200)
    assert len(path) < 20_000 and "V0.0H" in path


def test_steps_hold_until_the_next_point() -> None:
    assert curve([(0, 0), (5, 10)], 10, 10, steps=True, finest=1000) == "M0.0 1000.0H500.0V0.0"
    assert curve([(0, 0), (5, 10)], 10, 10, steps=False, finest=1000) == "M0.0 1000.0L500.0 0.0"
    assert curve([], 10, 10, steps=True, finest=1000) == ""


@pytest.mark.parametrize(
    ("most", "scale", "texts"),
    [
        (8.6e3, 1e3, ["0", "2", "4", "6", "8"]),
        (52 * 2**20, 2**20, ["0", "10", "20", "30", "40", "50"]),
        (0.03, 1, ["0", "0.005", "0.01", "0.015", "0.02", "0.025", "0.03"]),
        (0, 1, ["0"]),
        (float("inf"), 1, ["0"]),
    ],
)
def test_ticks_are_round(most: float, scale: float, texts: list[str]) -> None:
    assert [tick.text for tick in ticks(most, scale)] == texts
    assert all(0 <= tick.at <= 100 for tick in ticks(most, scale, from_top=True))
