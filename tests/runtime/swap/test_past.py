"""What is expected after what has come, against the definition spelled out."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.swap.past import CONTEXT, PAST, Past


def spelled_out(items: list[str]) -> str | None:
    """Each run that ends now, the longest first: what followed it where it came before."""
    if len(set(items[-PAST:])) == 1:
        return items[-1]
    for length in range(min(CONTEXT, len(items)), 0, -1):
        run = items[-length:]
        ends = [end for end in range(max(length, len(items) - PAST), len(items)) if items[end - length : end] == run]
        votes = Counter(items[end] for end in ends).most_common(2)
        if len(ends) >= 2 and (len(votes) == 1 or votes[0][1] > votes[1][1]):
            return votes[0][0]
    return None


def remembered(items: list[str]) -> Past[str]:
    past: Past[str] = Past()
    for item in items:
        past.append(item)
    return past


@given(st.lists(st.sampled_from("ab"), min_size=1, max_size=60) | st.lists(st.sampled_from("abc"), min_size=1))
def test_what_follows_is_what_mostly_followed_the_longest_run(items: list[str]) -> None:
    assert remembered(items).successor() == spelled_out(items)


@given(st.text("ab", min_size=1, max_size=60), st.integers(1, 300), st.text("ab", max_size=4))
def test_also_of_what_is_longer_than_what_is_remembered(pattern: str, length: int, end: str) -> None:
    items = list((pattern * length)[:length] + end)
    past = remembered(items)
    assert past.successor() == spelled_out(items)
    assert past.steady == (len(set(items[-PAST:])) == 1)
    assert past.latest == items[-1]


def test_of_nothing_nothing_follows() -> None:
    assert (Past[str]().latest, Past[str]().successor()) == (None, None)


@pytest.mark.parametrize("once", [1, PAST - 1])
def test_what_came_too_long_ago_is_forgotten(once: int) -> None:
    past = remembered(["a", *"b" * once])
    assert not past.steady
    past.append("b")
    assert past.steady == (once == PAST - 1)
