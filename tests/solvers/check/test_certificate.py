"""What certificates share: any prices bound a little program from below, and leaves must be those of a tree."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers.check.certificate import Box, Duals, Fault, Leaf, least_value, read_duals, read_limits, require_cover
from solvers.check.keyed import Column, Keyed, Row

COLUMNS: Keyed[Column] = Keyed(
    {
        "x": (1, lambda number: Column(3, cost_us=number + 1) if number < 2 else None),
        "y": (0, lambda: Column(5, 0, False)),
    }
)
"""x/0 costs 1, x/1 costs 2, both whole and at most 3; y is free and need not be whole."""
ROWS: Keyed[Row] = Keyed(
    {"need": (0, lambda: Row(4, None, {"x/0": 1, "x/1": 2, "y": 1})), "room": (0, lambda: Row(None, 2, {"y": 1}))}
)
POINTS = [
    {"x/0": a, "x/1": b, "y": c}
    for a, b, c in product(range(4), range(4), range(3))
    if a + 2 * b + c >= 4
]  # fmt: skip


def leaf(**limits: tuple[int, int]) -> Leaf:
    """Limits of x/0 and x/1, by `a` and `b`."""
    return Leaf("leaf", {{"a": "x/0", "b": "x/1"}[name]: pair for name, pair in limits.items()}, ())


@given(st.integers(0, 9), st.integers(-9, 0), st.tuples(st.integers(0, 3), st.integers(0, 3)).map(sorted))
def test_any_prices_bound_every_point_from_below(need: int, room: int, pair: list[int]) -> None:
    duals: Duals = read_duals({"need": need, "room": room}, ROWS, "duals")
    limits: Box = {"x/0": (pair[0], pair[1])}
    bound = least_value(COLUMNS, 4, limits, duals, {})
    costs = [4 * (point["x/0"] + 2 * point["x/1"]) for point in POINTS if pair[0] <= point["x/0"] <= pair[1]]
    assert bound <= min(costs)


def test_good_prices_meet_the_optimum() -> None:
    """y = 2 is free, the other 2 of the need cost 1 each."""
    duals = read_duals({"need": 1, "room": -1}, ROWS, "duals")
    assert least_value(COLUMNS, 1, {}, duals, {}) == 2
    assert min(point["x/0"] + 2 * point["x/1"] for point in POINTS) == 2


def test_a_cost_that_no_row_names_is_paid_where_it_is_asked_for() -> None:
    assert least_value(COLUMNS, 1, {"x/1": (2, 3)}, (), {}) == 4
    assert least_value(COLUMNS, 1, {}, (), {"x/0": -2}) == -3


def test_leaves_of_a_tree_cover_all() -> None:
    require_cover([leaf()], COLUMNS)
    require_cover([leaf(a=(0, 1)), leaf(a=(2, 3), b=(0, 0)), leaf(a=(2, 3), b=(1, 3))], COLUMNS)
    for leaves in (
        [leaf(a=(0, 1))],
        [leaf(a=(0, 1)), leaf(a=(3, 3))],
        [leaf(a=(0, 1)), leaf(a=(2, 3), b=(1, 3))],
        [leaf(a=(0, 1)), leaf(b=(1, 3))],
        [leaf(), leaf()],
    ):
        with pytest.raises(Fault):
            require_cover(leaves, COLUMNS)


def test_only_whole_columns_have_limits() -> None:
    assert read_limits({"x/0": [0, 2]}, COLUMNS, "limits") == {"x/0": (0, 2)}
    for key in ("y", "x/2", "x/00", "x", "z"):
        with pytest.raises(Fault, match="no whole column"):
            read_limits({key: [0, 1]}, COLUMNS, "limits")
