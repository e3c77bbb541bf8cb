"""The search for the largest aim, against counting down one by one where what fits has an end."""

from hypothesis import given
from hypothesis import strategies as st

from solvers.timeline.segments.headroom import FINEST, in_turns, largest_fitting


@given(st.integers(1, 100_000), st.integers(0, 100_000), st.integers(0, 100_000))
def test_where_less_always_fits_the_largest_is_found(budget: int, least: int, fits: int) -> None:
    asked = list[int]()

    def attempt(size: int) -> str | None:
        asked.append(size)
        return "it fits" if size <= fits else None

    found = largest_fitting(budget, least, attempt)
    if budget < least:
        assert found is None and not asked
        return
    assert all(least <= size <= budget for size in asked) and len(asked) <= 32
    if fits < least:
        assert found is None and asked[-1] == least
        return
    assert found is not None and found[1] == "it fits"
    assert min(fits, budget) - max(1, int(FINEST * budget)) <= found[0] <= min(fits, budget)


def test_what_was_found_was_tried_where_less_need_not_fit() -> None:
    fitting = {1000 - 10, 500}
    assert largest_fitting(1000, 100, lambda size: size if size in fitting else None) == (990, 990)


def test_turns_end_at_the_least_aim() -> None:
    asked = list[int]()
    assert in_turns(520, (505, 1000), lambda size: asked.append(size)) is None
    assert asked == [520, 510]
    assert in_turns(520, (0, 1000), lambda size: size if size < 515 else None) == (510, 510)
