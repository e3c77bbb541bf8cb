"""Plans made again for room that segments have left: which share of the budget to leave to them next, and what is best.

A plan whose segments took too much is made again for as much less, and what it then leaves is mostly more than they
need. So once one has kept the budget in all passes that are judged, the next is made for what that one left of it;
where it breaks the budget, for half of that. How much segments take of a plan is known only once it has run.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

MOST_SOUGHT = 3
"""How many plans are made for room that was left."""
WORTH, SMALLEST_BYTES = 1 / 100, 2 << 20
"""Room below that share of the budget, or below a small segment, is left alone."""
KeptT = TypeVar("KeptT")


@dataclass(frozen=True)
class Tried(Generic[KeptT]):
    """A plan that was carried out: what it left to segments, what these took, its objective, and how to go back.

    `sought`: it was made for room that another one had left.
    """

    spare_bytes: int
    took_bytes: int
    cost: float
    plan: KeptT
    sought: bool = False


class Room(Generic[KeptT]):
    """The plans of one measured step that ran, by what they left to segments of a budget."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self.sought = 0
        self.closed = False
        self.forget()

    def forget(self) -> None:
        """The step is another one: what its plans took says nothing any more."""
        self._tried: list[Tried[KeptT]] = []

    def close(self) -> None:
        """Seek no more room."""
        self.closed = True

    def note(self, tried: Tried[KeptT]) -> None:
        """A plan was judged."""
        self._tried.append(tried)

    @property
    def best(self) -> Tried[KeptT] | None:
        """The cheapest of the plans that kept the budget, of those that took least; None: none did."""
        kept = [one for one in self._tried if not self._breaks(one)]
        return min(kept, key=lambda one: (one.cost, one.took_bytes), default=None)

    @property
    def closest(self) -> Tried[KeptT] | None:
        """The plan whose segments took least."""
        return min(self._tried, key=lambda one: one.took_bytes, default=None)

    def next(self, least_bytes: int = 0) -> int | None:
        """How much to leave to segments in another plan, less than the best one does; None: leave it at that.

        At least `least_bytes`.
        No more than keeps the best plan's share of what segments take beside what is in use, and than the line between
        it and the nearest plan that took too much tells; halfway to one that was made for room.
        """
        best = self.best
        if best is None or self.closed or self.sought >= MOST_SOUGHT:
            return None
        left = self._budget_bytes - best.took_bytes
        spare = max(
            least_bytes, best.spare_bytes - left * (self._budget_bytes - best.spare_bytes) // self._budget_bytes
        )
        broken = [one for one in self._tried if one.spare_bytes < best.spare_bytes and self._breaks(one)]
        if broken:
            near = max(broken, key=lambda one: one.spare_bytes)
            apart = best.spare_bytes - near.spare_bytes
            told = apart * left // (near.took_bytes - best.took_bytes)
            spare = max(spare, best.spare_bytes - (min(told, apart // 2) if near.sought else told))
        if best.spare_bytes - spare < max(int(WORTH * self._budget_bytes), SMALLEST_BYTES):
            return None
        self.sought += 1
        return spare

    def known(self, cost: float) -> Tried[KeptT] | None:
        """A plan that took too much and costs as much: most likely the same."""
        return next((one for one in self._tried if one.cost == cost and self._breaks(one)), None)

    def _breaks(self, one: Tried[KeptT]) -> bool:
        return one.took_bytes > self._budget_bytes
