"""Whole duals: rounded once, never beyond what certificates hold."""

from hypothesis import given
from hypothesis import strategies as st

from solvers.engines.duals import LARGEST, UNIT, whole_dual, whole_us


@given(st.integers(-(2**20), 2**20), st.floats(0, 1, exclude_max=True))
def test_a_dual_is_the_nearest_whole_one(whole: int, part: float) -> None:
    assert abs(whole_dual(whole + part) - (whole + part) * UNIT) <= 1


def test_a_dual_beyond_all_bounds_is_the_largest() -> None:
    assert (whole_dual(1e300), whole_dual(-1e300)) == (LARGEST, -LARGEST)


@given(st.integers(-(10**30), 10**30))
def test_a_bound_is_rounded_up_to_a_microsecond(bound: int) -> None:
    """Ends are whole microseconds: the next whole one is allowed, the one before is not."""
    assert (whole_us(bound) - 1) * UNIT < bound <= whole_us(bound) * UNIT
