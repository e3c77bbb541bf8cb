"""Rows of the `layout` relaxation about what waits behind swap-ins, and what the network must have done (18)-(20).

Written from the README of solvers/layout alone. In them a swapped block counts by windows of blocks, any of which is
swapped or none, and chunks found at the turn by how far back they reach.
"""

from collections.abc import Callable

from solvers.check.keyed import Column, Row
from solvers.check.layout.step import Amount, LayoutStep, Terms, after, at_least, at_most, plus

MakeColumn = Callable[..., Column | None]
MakeRow = Callable[..., Row | None]


class LayoutQueue:
    """Columns and rows (18)-(20) of a step, for the decisions that end by `most_us`."""

    def __init__(self, step: LayoutStep, most_us: int) -> None:
        self.step, self.most_us = step, most_us
        self.order = sorted(range(len(step.chunks)), key=lambda c: (step.last[c], -c))
        self.place = {c: place for place, c in enumerate(self.order)}

    def columns(self) -> dict[str, tuple[int, MakeColumn]]:
        """Moments of the network, how far back found chunks reach, and windows of blocks."""
        passes, chunks = self.step.end, len(self.order)
        return {
            "done": (1, lambda e: Column(self.most_us, integer=False) if e < passes else None),
            "reach": (1, lambda c: Column(1) if c < chunks else None),
            "some": (2, lambda a, b: Column(1) if a < b < self.step.count else None),
        }

    def rows(self) -> dict[str, tuple[int, MakeRow]]:
        """All families, and how many numbers follow their names."""
        return {
            "done": (1, self._done),
            "cleared": (1, self._cleared),
            "reach": (2, self._reach),
            "some": (3, self._some),
            "waited": (2, self._waited),
            "blocked": (2, self._blocked),
        }

    def _done(self, e: int) -> Row | None:
        """(18) The network's tasks of pass e follow those of the pass before; in the first one, a load, too."""
        if e >= self.step.end:
            return None
        work = plus(self._gathers(e), self._reductions(e))
        if e == 0:
            work = plus(work, self.step.missing(0, self.step.blocks[0].chunks[:1], "load_us"))
        return after(f"done/{e}", f"done/{e - 1}" if e else None, work)

    def _cleared(self, e: int) -> Row | None:
        """(18) When the last reduction of pass e ends, all of this is done."""
        of_pass = [i for i, c in enumerate(self.step.order) if self.step.backward(self.step.first[c]) == e]
        return after(f"reduced/{of_pass[-1]}", f"done/{e}", ([], 0)) if of_pass else None

    def _reach(self, c: int, part: int) -> Row | None:
        """(19) What is found is reached (0); so are chunks asked for sooner (1), which are found or persistent (2)."""
        if c >= len(self.order):
            return None
        if part == 0:
            return at_most([(f"found/{c}", 1), (f"reach/{c}", -1)], 0)
        if part == 1 and self.place[c] + 1 < len(self.order):
            return at_most([(f"reach/{c}", 1), (f"reach/{self.order[self.place[c] + 1]}", -1)], 0)
        if part == 2:
            return at_most([(f"reach/{c}", 1), (f"found/{c}", -1), (f"persistent/{c}", -1)], 0)
        return None

    def _some(self, a: int, b: int, part: int) -> Row | None:
        """(20) Whether any block of a window is swapped: none (0), or one at least (1)."""
        if not a < b < self.step.count or part > 1:
            return None
        swapped: Terms = [(f"swap/{k}", 1) for k in range(a, b + 1)]
        if part:
            return at_least([*swapped, (f"some/{a}/{b}", -1)], 0)
        return at_most([*swapped, (f"some/{a}/{b}", a - b - 1)], 0)

    def _waited(self, a: int, b: int) -> Row | None:
        """(20) If any block of a window is swapped, no gather for passes behind the window begins before its room."""
        if not a <= b < self.step.count:
            return None
        room = self._room(b)
        ahead: Amount = ([], 0)
        for e in range(room + 1, self.step.backward(a) + 1):
            ahead = plus(ahead, self._gathers(e))
        fewer = [(key, -weight) for key, weight in ahead[0]], -ahead[1] - self.most_us
        return after(
            f"done/{room}",
            f"end/{room}",
            plus(self._reductions(room), plus(fewer, ([(self._any(a, b), self.most_us)], 0))),
        )

    def _blocked(self, a: int, b: int) -> Row | None:
        """(20) If any block of a window is swapped, it is swapped in after its room, and later loads come after it."""
        if not a <= b < self.step.count:
            return None
        least = min(block.swap_in_us for block in self.step.blocks[a : b + 1])
        moved = [(self._any(a, b), self.most_us + least)], -self.most_us
        return after(f"loaded/{self.step.backward(a)}", f"end/{self._room(b)}", moved)

    def _any(self, a: int, b: int) -> str:
        """The column that is 1 where some block of a…b is swapped."""
        return f"swap/{a}" if a == b else f"some/{a}/{b}"

    def _room(self, k: int) -> int:
        """The pass after which block k may be swapped in."""
        near = k + 1 + self.step.interval
        return self.step.count - 1 if near >= self.step.count else self.step.backward(near)

    def _gathers(self, e: int) -> Amount:
        return self.step.missing(e, self.step.fresh(e), "gather_us")

    def _reductions(self, e: int) -> Amount:
        total: Amount = ([], 0)
        for c in self.step.order:
            if self.step.backward(self.step.first[c]) == e:
                total = plus(total, self.step.reduction(c))
        return total
