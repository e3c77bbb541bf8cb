"""A plan under change: one recomputation more or less, and its memory is known again without a replay."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from solvers.recompute.graph.replay import Instance

ADD, REMOVE, KEEP, EXTRA = range(4)
Entry = tuple[int, int, int, int]
"""How one change is taken back: (what, its arguments)."""


class State:
    """Recomputations with their least retention, in bytes by stage, as `replay` would measure them.

    `starts[v]` are the stages that compute op v, ascending; `until[v][s]` is the last stage at whose start the output
    computed in stage s is still kept (s itself: it is not kept). Stage t begins with `kept[t]` bytes, static memory
    included, and has at most `kept[t] + extra[t]` in use. `cost` is what recomputation adds to the objective,
    `spent[t]` the time that recomputation takes in a communication stage.
    """

    def __init__(self, given: Instance, recomputed: Sequence[Collection[int]]) -> None:
        self.given = given
        count = len(given)
        self.again: list[set[int]] = [set(run) for run in recomputed]
        self.starts: list[list[int]] = [[v] for v in range(count)]
        for t, run in enumerate(self.again):
            for v in run:
                self.starts[v].append(t)
        self.until: list[dict[int, int]] = [{s: s for s in starts} for starts in self.starts]
        self.kept = np.full(count, given.static, dtype=np.int64)
        self.extra = np.array(given.size, dtype=np.int64)
        self.spent = [sum(given.time[v] for v in run) if given.comm[t] else 0 for t, run in enumerate(self.again)]
        self.cost = sum(given.time[v] for t, run in enumerate(self.again) if not given.comm[t] for v in run)
        self.stale: set[int] = {t for t, run in enumerate(self.again) if run}
        self.loose: list[tuple[int, int]] = []
        self.journal: list[Entry] = []
        for v in range(count):
            for s in self.starts[v]:
                self._settle(v, s)
        self.commit()

    def recomputed(self) -> list[set[int]]:
        """The recomputations by stage."""
        return [set(run) for run in self.again]

    # --- questions -------------------------------------------------------------------------------------------------

    def start_at(self, v: int, t: int) -> int:
        """The stage of the computation whose output of op v is the one that exists in stage t ≥ v."""
        starts = self.starts[v]
        return v if len(starts) == 1 else starts[bisect_right(starts, t) - 1]

    def last_use(self, v: int, low: int, high: int) -> int:
        """The last stage in [low, high) that reads op v; −1 (before every stage) where none does."""
        found = -1
        for u in self.given.users[v]:
            starts = self.starts[u]
            s = starts[-1]
            if s >= high:
                place = bisect_left(starts, high)
                if place == 0:
                    continue
                s = starts[place - 1]
            if s > found:
                found = s
        return found if found >= low else -1

    def next_use(self, v: int, low: int) -> int:
        """The first stage ≥ low that reads op v; the number of stages where none does."""
        found = len(self.starts)
        for u in self.given.users[v]:
            starts = self.starts[u]
            s = starts[0]
            if s < low:
                place = bisect_left(starts, low)
                if place == len(starts):
                    continue
                s = starts[place]
            if s < found:
                found = s
        return found

    def levels(self) -> Any:
        """The most bytes in use by stage, static memory included."""
        if self.stale:
            self._refresh()
        return self.kept + self.extra

    # --- changes ---------------------------------------------------------------------------------------------------

    def add(self, t: int, v: int) -> None:
        """Compute op v again in stage t > v; its inputs are kept until then."""
        starts, until = self.starts[v], self.until[v]
        place = bisect_left(starts, t)
        before = starts[place - 1]
        last = until[before]
        starts.insert(place, t)
        self.again[t].add(v)
        until[t] = t
        self.journal.append((ADD, t, v, 0))
        self._charge(t, self.given.time[v])
        self.stale.add(t)
        if last >= t:  # the readers from stage t on read the new output
            self._keep(v, t, last)
            self._keep(v, before, max(before, self.last_use(v, before, t)))
        else:
            self.loose.append((v, t))
        for j in self.given.inputs[v]:
            s = self.start_at(j, t)
            if self.until[j][s] < t:
                self._keep(j, s, t)

    def remove(self, t: int, v: int) -> None:
        """Do not compute op v in stage t: the output computed before is kept for those that read this one."""
        starts, until = self.starts[v], self.until[v]
        place = bisect_left(starts, t)
        last = until[t]
        self._keep(v, t, t)
        del starts[place], until[t]
        self.again[t].discard(v)
        self.journal.append((REMOVE, t, v, 0))
        self._charge(t, -self.given.time[v])
        self.stale.add(t)
        if last > t:
            self._keep(v, starts[place - 1], last)
        else:
            self._settle(v, starts[place - 1])
        for j in self.given.inputs[v]:
            s = self.start_at(j, t)
            if self.until[j][s] == t:
                self._settle(j, s)

    def drop_unread(self) -> None:
        """Take away the recomputations that the changes since the last call have left without a reader."""
        while self.loose:
            v, s = self.loose.pop()
            if s not in self.until[v]:
                continue
            starts = self.starts[v]
            place = bisect_left(starts, s)
            end = starts[place + 1] if place + 1 < len(starts) else len(self.starts)
            if self.last_use(v, s, end) < 0:
                self.remove(s, v)

    def commit(self) -> None:
        """Keep the changes."""
        self._refresh()
        self.journal.clear()

    def mark(self) -> int:
        """A place to go back to."""
        self._refresh()
        return len(self.journal)

    def undo(self, mark: int = 0) -> None:
        """Take back every change since the last commit, or since a mark after it."""
        self.loose.clear()
        journal, back = self.journal, (self._back_add, self._back_remove, self._back_keep, self._back_extra)
        while len(journal) > mark:
            what, one, two, three = journal.pop()
            back[what](one, two, three)
        self.stale.clear()

    # --- inside ----------------------------------------------------------------------------------------------------

    def _settle(self, v: int, s: int) -> None:
        """Op v's output of stage s is kept to its last reader before the next computation of op v."""
        starts = self.starts[v]
        end = len(self.starts) if starts[-1] == s else starts[bisect_right(starts, s)]
        self._keep(v, s, max(s, self.last_use(v, s, end)))

    def _keep(self, v: int, s: int, last: int) -> None:
        """Keep op v's output of stage s until stage `last`."""
        before = self.until[v][s]
        if last == s != v:
            self.loose.append((v, s))
        if before == last:
            return
        self.until[v][s] = last
        size = self.given.size[v]
        if last > before:
            self.kept[before + 1 : last + 1] += size
        else:
            self.kept[last + 1 : before + 1] -= size
        self.journal.append((KEEP, v, s, before))
        if self.again[before]:
            self.stale.add(before)
        if self.again[last]:
            self.stale.add(last)

    def _charge(self, t: int, time_us: int) -> None:
        if self.given.comm[t]:
            self.spent[t] += time_us
        else:
            self.cost += time_us

    def _refresh(self) -> None:
        for t in self.stale:
            extra = self._extra(t)
            before = int(self.extra[t])
            if extra != before:
                self.journal.append((EXTRA, t, before, 0))
                self.extra[t] = extra
        self.stale.clear()

    def _extra(self, t: int) -> int:
        """The most bytes in use in stage t beyond those at its start: `replay`'s recursion."""
        given, size, run = self.given, self.given.size, self.again[t]
        if not run:
            return size[t]
        order = [*sorted(run), t]
        final: dict[int, int] = {}
        for i in order:
            for j in given.inputs[i]:
                final[j] = i
            final[i] = i
        freed = dict.fromkeys(order, 0)
        for j, i in final.items():
            starts = self.starts[j]
            start = j if len(starts) == 1 else starts[bisect_right(starts, t) - 1]
            if self.until[j][start] == t:
                freed[i] += size[j]
        level = most = 0
        for i in order[:-1]:
            level += size[i]
            if level > most:
                most = level
            level -= freed[i]
        if given.comm[t]:
            most += size[t]
        return max(most, level + size[t])

    def _back_add(self, t: int, v: int, _: int) -> None:
        starts = self.starts[v]
        del starts[bisect_left(starts, t)], self.until[v][t]
        self.again[t].discard(v)
        self._charge(t, -self.given.time[v])

    def _back_remove(self, t: int, v: int, _: int) -> None:
        starts = self.starts[v]
        starts.insert(bisect_left(starts, t), t)
        self.until[v][t] = t
        self.again[t].add(v)
        self._charge(t, self.given.time[v])

    def _back_keep(self, v: int, s: int, before: int) -> None:
        last = self.until[v][s]
        self.until[v][s] = before
        size = self.given.size[v]
        if last > before:
            self.kept[before + 1 : last + 1] -= size
        else:
            self.kept[last + 1 : before + 1] += size

    def _back_extra(self, t: int, before: int, _: int) -> None:
        self.extra[t] = before
