"""Names, and amounts in parts: what problems of several kinds are made of."""

from itertools import pairwise

from hypothesis import strategies as st

names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
"""Any text that UTF-8 holds, spaces, commas, quotes and line ends included."""

tensor_ids = st.one_of(st.integers(0, 99), names)


@st.composite
def splits(draw: st.DrawFn, total: int, parts: int) -> tuple[int, ...]:
    """`total` in `parts` positive parts, in order."""
    cuts = sorted(draw(st.lists(st.integers(1, total - 1), min_size=parts - 1, max_size=parts - 1, unique=True)))
    return tuple(after - before for before, after in pairwise([0, *cuts, total]))
