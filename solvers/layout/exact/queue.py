"""What waits behind swap-ins, in the relaxation of `exact-layout` (README, rows (18)-(20)).

The swap-in of a block waits for room, and the loads behind it wait with it, so that the network cannot gather ahead.
Whether any block of a window is swapped, and how far back the chunks reach that backward finds, are columns to split.
"""

from dataclasses import dataclass, field
from itertools import pairwise

from solvers.layout.exact.lanes import Amount, Lanes, plus

WIDTHS = (1, 2, 4)
"""Blocks of a window; a window of one block is the block's own column."""
SPARSE = 3
"""Of rows (14) every third pass has some, and none until the last backward: they are long, and rows (18) say more."""


@dataclass(frozen=True)
class Window:
    """Blocks `first` … `last`: `column` is 1 where any is swapped, and then no load for a later pass than `behind`,
    the backward of the first, begins before pass `room` has ended."""

    first: int
    last: int
    key: str
    column: int
    room: int
    behind: int


@dataclass
class Queued:
    """Columns of rows (18)-(20): by pass `done`, by chunk `reach`, and windows; `order`: chunks as `reach` has them."""

    done: list[int] = field(default_factory=list)
    reach: list[int] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)

    def whole(self) -> dict[str, int]:
        """Columns that may be split, by key."""
        found = {f"reach/{c}": column for c, column in enumerate(self.reach)}
        return found | {window.key: window.column for window in self.windows if window.first < window.last}


class QueuedLanes(Lanes):
    """The lanes with these rows besides, for decisions that end by `most_us`."""

    def add_queue(self, most_us: int) -> Queued:
        """Add columns and rows; the lanes' own must be there."""
        self.most_us = most_us
        self.queued_columns = Queued()
        self._done()
        self._reach()
        for width in WIDTHS:
            for first in range(self.count - width + 1):
                if any(self.blocks[k].choice for k in range(first, first + width)):
                    self._window(first, first + width - 1)
        return self.queued_columns

    def _to_come(self, number: int, until: int, last: int, asked: list[int]) -> None:
        if until != 1 and number % SPARSE == 0:
            super()._to_come(number, until, last, asked)

    def _net(self, number: int) -> Amount:
        """What the network does for a pass: gathers of what is missing, reductions of what it completes."""
        return plus(self._missing(number, self._misses(number), "gather_us"), self._reduced(number))

    def _reduced(self, number: int) -> Amount:
        completes = self.given.completes[self._block(number)] if number >= self.count else []
        return plus(*(self._reduction(chunk) for chunk in completes))

    def _done(self) -> None:
        """(18) The network's work adds up, and the last reduction of a pass ends after all of it."""
        done = self.queued_columns.done = self.builder.columns(self.passes, name="done").tolist()
        last = {self.passes - 1 - self.given.first[chunk]: place for place, chunk in enumerate(self.order)}
        for number in range(self.passes):
            work = self._net(number)
            if number == 0:
                work = plus(work, self._missing(0, self.blocks[0].chunks[:1], "load_us"))
            self._after(done[number], done[number - 1] if number else None, work, f"done/{number}")
            if number in last:
                self._after(self.reduced[last[number]], done[number], ([], 0), f"cleared/{number}")

    def _reach(self) -> None:
        """(19) Chunks found reach back from those asked for first in backward; all between are found or persistent."""
        chunks = len(self.chunks)
        reach = self.builder.columns(chunks, 0, 1, name="reach").tolist()
        order = sorted(range(chunks), key=lambda chunk: (self.given.last[chunk], -chunk))
        self.queued_columns.reach, self.queued_columns.order = reach, order
        for chunk in range(chunks):
            self.builder.row([self.found[chunk], reach[chunk]], [1, -1], upper=0, name=f"reach/{chunk}/0")
            columns = [reach[chunk], self.found[chunk], self.persistent[chunk]]
            self.builder.row(columns, [1, -1, -1], upper=0, name=f"reach/{chunk}/2")
        for one, other in pairwise(order):
            self.builder.row([reach[one], reach[other]], [1, -1], upper=0, name=f"reach/{one}/1")

    def _window(self, first: int, last: int) -> None:
        """(20) If any block of the window is swapped, later loads and gathers begin after there was room for it."""
        near, behind = last + 1 + self.problem.interval, self.passes - 1 - first
        room = self.count - 1 if near >= self.count else self.passes - 1 - near
        key, column = f"swap/{first}", self.swapped[first]
        if first < last:
            key, column = self._some(first, last)
        ahead = (self._missing(e, self._misses(e), "gather_us") for e in range(room + 1, behind + 1))
        terms, constant = plus(*ahead)
        fewer: Amount = [(term, -value) for term, value in terms], -constant - self.most_us
        waited = plus(self._reduced(room), fewer, ([(column, float(self.most_us))], 0))
        self._after(self.queued_columns.done[room], self.end[room], waited, f"waited/{first}/{last}")
        least = min(block.swap_in_us for block in self.blocks[first : last + 1])
        moved: Amount = [(column, float(self.most_us + least))], -self.most_us
        self._after(self.into[behind], self.end[room], moved, f"blocked/{first}/{last}")
        self.queued_columns.windows.append(Window(first, last, key, column, room, behind))

    def _some(self, first: int, last: int) -> tuple[str, int]:
        """The column of a window of several blocks."""
        key = f"some/{first}/{last}"
        column, width = self.builder.column(0, 1, name=key), last - first + 1
        blocks = self.swapped[first : last + 1]
        self.builder.row([*blocks, column], [1] * width + [-width], upper=0, name=f"{key}/0")
        self.builder.row([*blocks, column], [1] * width + [-1], lower=0, name=f"{key}/1")
        return key, column
