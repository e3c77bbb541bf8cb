"""What has come one after the other, and what may be expected next."""

from collections import Counter, deque
from collections.abc import Hashable
from itertools import groupby
from typing import Generic, TypeVar

PAST = 128
"""So many latest items are looked at for what comes next; a pattern is found if this holds it three times."""
CONTEXT = 48
"""The longest run of items that is looked for among them."""

ItemT = TypeVar("ItemT", bound=Hashable)


class Past(Generic[ItemT]):
    """The latest items."""

    def __init__(self) -> None:
        self._items: deque[ItemT] = deque(maxlen=PAST)  # the latest first
        self._runs: list[int] = []  # at distance - 1: so many latest items are those of so much earlier

    @property
    def latest(self) -> ItemT | None:
        """None where nothing has come."""
        return self._items[0] if self._items else None

    @property
    def steady(self) -> bool:
        """Whether all of them are the same."""
        return not self._runs or self._runs[0] >= len(self._items) - 1

    def append(self, item: ItemT) -> None:
        """It came after the others."""
        earlier = zip([*self._runs, 0], self._items, strict=False)
        self._runs = [run + 1 if other == item else 0 for run, other in earlier]
        self._items.appendleft(item)

    def successor(self) -> ItemT | None:
        """What mostly followed the longest run that ends now and came twice before.

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
