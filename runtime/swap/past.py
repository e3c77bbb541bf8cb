"""A sequence of items as it grows, and a forecast of the next item."""

from collections import Counter, deque
from collections.abc import Hashable
from itertools import groupby
from typing import Generic, TypeVar

PAST = 128
"""Number of latest items that the forecast looks at; a pattern is found if it occurs three times among them."""
CONTEXT = 48
"""The longest run of items that is searched for among them."""

ItemT = TypeVar("ItemT", bound=Hashable)


class Past(Generic[ItemT]):
    """The latest items of a sequence."""

    def __init__(self) -> None:
        self._items: deque[ItemT] = deque(maxlen=PAST)  # the latest first
        self._runs: list[int] = []  # at d - 1: length of the latest run that equals the run d items earlier

    @property
    def latest(self) -> ItemT | None:
        """The latest item; None where there is none."""
        return self._items[0] if self._items else None

    @property
    def steady(self) -> bool:
        """Whether all of them are the same."""
        return not self._runs or self._runs[0] >= len(self._items) - 1

    def append(self, item: ItemT) -> None:
        """Append an item."""
        earlier = zip([*self._runs, 0], self._items, strict=False)
        self._runs = [run + 1 if other == item else 0 for run, other in earlier]
        self._items.appendleft(item)

    def successor(self) -> ItemT | None:
        """The item that mostly followed the longest run that ends now and occurred at least twice before.

        Of equally many, as a shorter run says; None where nothing that ends now came twice before.
        """
        if self.steady:
            return self.latest
        ends = sorted(((min(run, CONTEXT), place) for place, run in enumerate(self._runs) if run), reverse=True)
        followed: Counter[ItemT] = Counter()
        for _, longer in groupby(ends, key=lambda end: end[0]):
            followed.update(self._items[place] for _, place in longer)
            (best, times), *others = followed.most_common(2)
            if followed.total() >= 2 and (not others or others[0][1] < times):
                return best
        return None
