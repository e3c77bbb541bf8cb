"""Recomputations behind communication: from the compute lane, where they take time, to communication before it.

Bytes are reckoned with as if nothing were freed sooner, the link not at all: whoever gets a choice measures it.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from solvers.joint.choice import Choice, levels, spans
from solvers.joint.draft import Kept, kept_of
from solvers.joint.given import Given

DEPTH = 6
"""The longest chain of inputs that is moved with an op."""
TRIES = 40
"""Places tried for an op and all that moves with it."""


def behind(given: Given, choice: Choice, stop: Callable[[], bool] = lambda: False) -> Iterator[Choice]:
    """The choice with what communication can hide behind it: where swaps return sooner for that, and where none does.

    Nothing where the choice has no recomputation that could move.
    """
    movable = any(run and not given.graph.comm[t] for t, run in enumerate(choice.again))
    if not movable or not any(given.hideable):
        return
    kept = kept_of(given, choice.again)
    if kept.fault is not None:
        return
    for sooner in (True, False):
        moves = _Moves(given, choice, kept, sooner)
        if not stop() and moves.made(stop):
            yield moves.choice


class _Moves:
    """What moves where. `room`: bytes left by stage, `left`: ticks by communication; `there`: what is there since."""

    def __init__(self, given: Given, choice: Choice, kept: Kept, sooner: bool) -> None:
        self.given, self.choice, self.kept, self.sooner = given, choice.copy(), kept, sooner
        graph = given.graph
        self.windows = [t for t in range(graph.replays_from, len(given)) if graph.comm[t] and given.time[t]]
        self.left = {t: given.time[t] - sum(given.time[i] for i in choice.again[t]) for t in self.windows}
        gaps = spans(kept, choice.away)
        self.room = given.budget - levels(given, kept, gaps)
        self.away: dict[int, list[tuple[int, int]]] = {}
        for op, first, last in gaps:
            self.away.setdefault(op, []).append((first, last))
        self.there: dict[int, list[tuple[int, int]]] = {}
        self.tries = 0

    def made(self, stop: Callable[[], bool]) -> bool:
        """Move what can be, the latest stage and op first; whether anything did."""
        moved = False
        for t in range(len(self.given) - 1, -1, -1):
            if stop():
                break
            for i in sorted(self.choice.again[t], reverse=True) if not self.given.graph.comm[t] else ():
                if i in self.choice.again[t] and self.given.hideable[i]:
                    moved = self._move(i, t) or moved
        return moved

    def _move(self, i: int, t: int) -> bool:
        """Op i of stage t, with what it needs there, if there is a place for all."""
        self.tries = TRIES
        put = self._place(i, t, t, _Put({}, {}, {}), DEPTH)
        if put is None:
            return False
        held = {**{j: (w, t) for j, w in put.at.items()}, **put.returns}
        room = self.room.copy()
        for j, (first, last) in held.items():
            room[first:last] -= self.given.graph.size[j]
        if int(room.min()) < 0:
            return False
        self.room = room
        for w, taken in put.taken.items():
            self.left[w] -= taken
        for j, (first, last) in held.items():
            self.there.setdefault(j, []).append((first, last))
        for j, (_, last) in put.returns.items():
            self.away[j] = [gap for gap in self.away[j] if gap[1] != last]
        for j, w in put.at.items():
            self.choice.again[t].discard(j)
            self.choice.again[w].add(j)
        return True

    def _place(self, i: int, t: int, before: int, put: "_Put", depth: int) -> "_Put | None":
        """The latest communication before stage `before` that has time for op i, its inputs there or placed before."""
        touched = self.kept.touched[i]
        number = bisect_left(touched, t)
        if number == 0 or depth == 0:
            return None
        earlier, until = max(touched[number - 1], i), t
        place = bisect_left(self.windows, before) - 1
        while place >= 0 and (w := self.windows[place]) > earlier and self.tries > 0:
            place, self.tries = place - 1, self.tries - 1
            if w < until and int(self.room[w:until].min()) < self.given.graph.size[i]:
                return None
            until = min(until, w)
            found = self._inputs(i, t, w, put.with_op(i, w, self.given.time[i]), depth)
            if found is not None:
                return found
        return None

    def _inputs(self, i: int, t: int, w: int, put: "_Put", depth: int) -> "_Put | None":
        """With op i in stage w, what it reads; None where the communication has no time for it or lacks an input."""
        if self.left[w] < put.taken[w]:
            return None
        found: _Put | None = put
        for j in self.given.graph.inputs[i]:
            if found is not None:
                found = self._with(j, t, w, found, depth)
        return found

    def _with(self, j: int, t: int, w: int, put: "_Put", depth: int) -> "_Put | None":
        """What is put so that stage w finds an input: it is there, returns sooner, or is placed in w or before."""
        if j == w:
            return None
        if j in put.at or j in put.returns:
            first = put.at[j] if j in put.at else put.returns[j][0]
            return put if first <= w else None
        if j in self.choice.again[w] or any(first <= w < last for first, last in self.there.get(j, ())):
            return put
        gone = next((gap for gap in self.away.get(j, ()) if gap[0] < w < gap[1]), None)
        if gone is not None:
            return _Put(put.at, put.taken, {**put.returns, j: (w, gone[1])}) if self.sooner else None
        if self.kept.gap(j, w) is not None or w in self.kept.touched[j]:
            return put
        if j not in self.choice.again[t] or not self.given.hideable[j]:
            return None
        return self._place(j, t, w + 1, put, depth - 1)


@dataclass(frozen=True)
class _Put:
    """Where ops go, the ticks that this takes of each communication, and what returns sooner: (when, its reader)."""

    at: dict[int, int]
    taken: dict[int, int]
    returns: dict[int, tuple[int, int]]

    def with_op(self, i: int, w: int, ticks: int) -> "_Put":
        """Op i as well."""
        return _Put({**self.at, i: w}, {**self.taken, w: self.taken.get(w, 0) + ticks}, self.returns)
