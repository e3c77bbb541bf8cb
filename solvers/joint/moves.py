"""Changes of one decision or a few in a `State`: what leaves is computed again instead, what stays leaves, and so on.

None of them asks whether memory or the lanes have room: `anneal.py` measures, and takes back what is no good.
"""

import random
from bisect import bisect_left
from typing import Literal

from solvers.joint.choice import where
from solvers.joint.state import State

NEAR = 6
"""How many communications before its reader are places for what hides."""
DEPTH = 12
"""The most ops that one decision computes again."""
CLOSE = 3
"""How many outputs alike before and after one count as close to it."""
FREED, WIDTHS = (0.2, 0.5, 0.8, 1.0, 1.0, 1.2), (10, 30, 100, 1000)
"""Of the time on the link that a trade takes: how much others give up; among how many that leave before and after."""
REACH = (2, 8, 30, 100)
"""By how many stages at most one waits more or less before it leaves."""
WAITS = 0.78
"""Draws from 0.7 up to here are of how long something waits."""
TRIES = 8
"""Draws until something is found that can change."""

Span = tuple[int, int, int]
"""(op, the stage that touches its output last before the gap, the stage that does so next)."""
Fate = Literal["stays", "leaves", "again"]
"""What happens to an output between two stages that touch it."""


class Moves:
    """Random changes of a state; each says whether it came to an end (what it did before it failed is to be undone)."""

    def __init__(self, state: State, source: random.Random) -> None:
        self.state, self.given, self.source = state, state.given, source
        given, graph = state.given, state.given.graph
        self.windows = [t for t in range(graph.replays_from, len(given)) if graph.comm[t] and given.time[t]]
        kinds: dict[tuple[int, int], list[int]] = {}
        for i in range(len(given)):
            kinds.setdefault((graph.size[i], given.time[i]), []).append(i)
        self.alike = [kinds[graph.size[i], given.time[i]] for i in range(len(given))]
        self.sized = [i for i in range(len(given)) if graph.size[i]]
        self.gone: list[tuple[int, int]] = []
        self.runs: list[tuple[int, int]] = []
        self.refresh()

    def refresh(self) -> None:
        """After a change that stays: what leaves behind which stage, (stage, op), and what runs again in which."""
        self.gone = sorted((a, i) for i, a in self.state.away)
        self.runs = [(t, i) for t in sorted(self.state.running) for i in sorted(self.state.again[t])]

    def any(self) -> bool:
        """One of them."""
        roll = self.source.random()
        if self.gone and roll < 0.25:
            return self.redecide(*self._worth_running())
        if self.runs and roll < 0.5:
            return self.withdraw(*self.worth_sending())
        if self.runs and roll < 0.65:
            return self._trade(*self.worth_sending())
        if roll < 0.7:
            return self._free()
        if self.gone and roll < WAITS:
            return self.postpone(*self.source.choice(self.gone))
        if self.gone and (not self.runs or roll < 0.9):
            return self._swapped_with(*self._worth_running())
        return bool(self.runs) and self._rerun_with(*self.worth_sending())

    def _worth_running(self) -> tuple[int, int]:
        """Something that leaves; more often what takes less time to compute per time on the link."""
        one, other = self.source.choice(self.gone), self.source.choice(self.gone)
        time, link = self.given.time, self.given.out_time
        return other if time[other[1]] * link[one[1]] < time[one[1]] * link[other[1]] else one

    def worth_sending(self) -> tuple[int, int]:
        """Something that is computed again; more often what takes longer."""
        one, other = self.source.choice(self.runs), self.source.choice(self.runs)
        return other if self.given.time[other[1]] > self.given.time[one[1]] else one

    # -- one decision

    def redecide(self, a: int, i: int) -> bool:
        """What leaves stays, or is computed again."""
        b = self.state.away[i, a]
        if self.source.random() < 0.25:
            self.state.keep(i, a)
            return True
        return self._again(i, a, b)

    def withdraw(self, t: int, i: int) -> bool:
        """What is computed again leaves, or stays, or is computed behind other communication."""
        a, roll = self.before(i, t), self.source.random()
        self.remove(t, i)
        if roll < 0.25 and self.windows and self.given.hideable[i]:
            b = self.state.gap(i, a)
            return b is not None and self._again(i, a, b)
        if roll < 0.85:
            self.state.send(i, a)
        return True

    def postpone(self, a: int, i: int) -> bool:
        """What leaves does so sooner or later: as soon as it can, with something else, or some stages from there."""
        state, source = self.state, self.source
        before, b, roll = state.behind(i, a), state.away[i, a], source.random()
        if roll < 0.2:
            leaves = a
        elif roll < 0.5:
            first, other = source.choice(self.gone)
            leaves = state.behind(other, first)
        else:
            leaves = before + source.choice((-1, 1)) * source.randint(1, source.choice(REACH))
        if max(a, min(leaves, b - 2)) == before:
            return False
        state.keep(i, a)
        state.send(i, a, leaves)
        return True

    def _free(self) -> bool:
        """What stays leaves, or is computed again."""
        held = self._drawn(self.sized, "stays")
        if held is None:
            return False
        i, a, b = held
        if self.source.random() < 0.5:
            self.state.send(i, a)
            return True
        return self._again(i, a, b)

    # -- several at once

    def _swapped_with(self, a: int, i: int) -> bool:
        """What leaves stays, and another leaves; or it is computed again, and what was so leaves."""
        b = self.state.away[i, a]
        if self.source.random() < 0.3:
            self.state.keep(i, a)
            other = self._other(i, "stays")
        else:
            if not self._again(i, a, b):
                return False
            other = self._other(i, "again")
            if other is not None:
                self.remove(other[2], other[0])
        if other is not None:
            self.state.send(other[0], other[1])
        return other is not None

    def _rerun_with(self, t: int, i: int) -> bool:
        """What is computed again stays, and what stayed is computed again; or it leaves, and so is what left."""
        a = self.before(i, t)
        self.remove(t, i)
        fate: Fate = "stays" if self.source.random() < 0.3 else "leaves"
        if fate == "leaves":
            self.state.send(i, a)
        other = self._other(i, fate)
        return other is not None and self._again(*other)

    def _trade(self, t: int, i: int) -> bool:
        """What is computed again leaves, and what leaves near it and takes less time per time on the link is so."""
        state, source, given = self.state, self.source, self.given
        a, saved = self.before(i, t), state.ticks[t]
        self.remove(t, i)
        saved -= state.ticks[t]
        state.send(i, a)
        if (i, a) not in state.away:
            return False
        took, width = max(1, given.out_time[i]), source.choice(WIDTHS)
        place = bisect_left(self.gone, (a, i))
        near = [
            (first, j)
            for first, j in self.gone[max(0, place - width) : place + width]
            if given.out_time[j] < took and given.time[j] * took < saved * given.out_time[j]
        ]
        if source.random() < 0.5:
            source.shuffle(near)
        else:
            near.sort(key=lambda one: given.time[one[1]] / given.out_time[one[1]] * source.uniform(0.7, 1.4))
        freed = took * source.choice(FREED)
        for first, j in near:
            if freed <= 0:
                break
            if (j, first) in state.away and self._again(j, first, state.away[j, first]):
                freed -= given.out_time[j]
        return True

    def _other(self, i: int, fate: Fate) -> Span | None:
        """Of another output, close or alike, a gap with that fate."""
        others = self.alike[i]
        if len(others) < 2 or self.source.random() < 0.2:
            others = self.sized
        if self.source.random() < 0.5:
            place = bisect_left(others, i)
            others = others[max(0, place - CLOSE) : place + CLOSE + 1]
        return self._drawn(others, fate, but=i)

    def _drawn(self, ops: list[int], fate: Fate, but: int = -1) -> Span | None:
        """A gap with that fate of one of these ops; None if `TRIES` draws find none."""
        for _ in range(TRIES if ops else 0):
            i = self.source.choice(ops)
            stages = self.state.touched[i]
            start = self.source.randrange(len(stages))
            for place in range(start, len(stages) - 1) if i != but else ():
                a, b = stages[place], stages[place + 1]
                if self.fate(i, a, b) == fate:
                    return i, a, b
        return None

    def fate(self, i: int, a: int, b: int) -> Fate | None:
        """What happens to op i's output between two stages that touch it; None where there is nothing to decide."""
        if b in self.state.made[i]:
            return "again"
        if (i, a) in self.state.away:
            return "leaves"
        return "stays" if b > a + 1 else None

    # -- parts of them

    def before(self, i: int, t: int) -> int:
        """The stage before t that touches op i's output last."""
        stages = self.state.touched[i]
        return stages[bisect_left(stages, t) - 1]

    def remove(self, t: int, i: int) -> None:
        """Op i is computed again in stage t no longer, nor what only it needed there."""
        state = self.state
        state.take(t, i)
        for j in self.given.graph.inputs[i]:
            if j in state.again[t] and j not in state.reads[t] and state.gap(j, t) is None:
                self.remove(t, j)

    def _again(self, i: int, a: int, b: int) -> bool:
        """Compute op i again for a gap's end: in that stage, or behind communication before it."""
        at = where(self.given, b, a)
        if self.windows and self.given.hideable[i] and self.source.random() < 0.7:
            place = bisect_left(self.windows, b + 1)
            near = [w for w in self.windows[max(0, place - NEAR) : place] if w > a]
            at = self.source.choice(near) if near else at
        return at is not None and self.put(i, at)

    def put(self, i: int, at: int) -> bool:
        """Compute op i again in a stage with what it needs there; False where that is impossible.

        An input that is gone by then is computed again as well, seldom kept until then; of those there, some now leave
        until then.
        """
        state, graph, source = self.state, self.given.graph, self.source
        found, sooner = self._needed(i, at)
        if not found:
            return False
        if graph.comm[at] and sum(self.given.time[j] for j in (*found, *state.again[at])) > self.given.time[at]:
            return False
        for j in sorted(sooner):
            state.put(self._silent(at), j)
        for j in sorted(found):
            state.put(at, j)
        for k in [k for j in found for k in graph.inputs[j]]:
            if k != at and k not in state.again[at] and k not in graph.inputs[at] and source.random() < 0.1:
                before = self.before(k, at)
                if (k, before) not in state.away:
                    state.send(k, before)
        return True

    def _needed(self, i: int, at: int) -> tuple[list[int], list[int]]:
        """What is to be computed so that stage `at` computes op i; nothing where that is impossible.

        Second, what is to be so in the last stage before that does not communicate: communication that `at` would read.
        """
        state, graph = self.state, self.given.graph
        found, talks, stack = list[int](), list[int](), [i]
        while stack:
            j = stack.pop()
            if j in found or j in talks or j in state.again[at]:
                continue
            if graph.comm[at] and graph.comm[j] and j != i:
                talks.append(j)
                continue
            hidden = graph.comm[at] and (graph.comm[j] or j in graph.inputs[at])
            if j >= at or hidden or not graph.may_replay(at, j) or len(found) == DEPTH:
                return [], []
            found.append(j)
            stack += [k for k in graph.inputs[j] if k != at and not state.there(k, at) and self.source.random() < 0.9]
        sooner, earlier = list[int](), self._silent(at)
        for j in talks:
            if j not in sooner and not state.there(j, earlier):
                more, _ = self._needed(j, earlier)
                if not more:
                    return [], []
                sooner += [k for k in more if k not in sooner]
        return found, sooner

    def _silent(self, at: int) -> int:
        """The last stage before one that does not communicate; 0 where there is none."""
        while at > 0 and self.given.graph.comm[at]:
            at -= 1
        return at
