"""Hide what is computed again in communications, the last communication first.

What has to be there again at some stage may be computed in any communication before it. So, seen from the end of the
step, an op that can be hidden in one window can be hidden in all windows that come next, as far as memory goes: filling
each window as well as possible, in that order, leaves little unhidden.
"""

import itertools
from collections.abc import Collection, Sequence

from solvers.recompute.graph.replay import Instance

LOOKED_AT = 12
"""Candidates that compete for a window: those that are needed last."""


class Packing:
    """`again` are the ops computed again, each once; `latest` the stages in which they are due just in time."""

    def __init__(self, given: Instance, again: Collection[int], first_uses: Sequence[int | None], reach: int) -> None:
        self.given, self.reach = given, reach
        chosen: set[int] = set()
        for i in sorted(again, reverse=True):
            if first_uses[i] is not None or any(user in chosen for user in given.users[i]):
                chosen.add(i)  # the others nobody reads again
        self.again = sorted(chosen)
        self.first_uses = first_uses
        self.children = {i: [c for c in given.users[i] if c in chosen] for i in self.again}
        self.parents = {i: [j for j in given.inputs[i] if j in chosen] for i in self.again}
        self.stage: dict[int, int] = {}
        self.hideable = [i for i in self.again if not given.comm[i]]
        self.open = set(self.again)
        for i in reversed(self.again):
            self.stage[i] = self._just_in_time(i)

    def _just_in_time(self, i: int) -> int:
        """The last stage, no communication, in which i can be computed so that all who read it find it."""
        given = self.given
        use = self.first_uses[i]
        stages = [self.stage[c] for c in self.children[i]]
        if use is not None:
            stages.append(use - 1 if given.comm[use] else use)
        stage = min(stages)
        while given.comm[stage]:
            stage -= 1
        return stage

    def run(self, windows: Sequence[int]) -> list[set[int]]:
        """Recomputations by stage."""
        for w in sorted(windows, reverse=True):
            for i in self._best(w):
                self.open.remove(i)
                self.stage[i] = w
                self._bring_forward(i)
        recomputed: list[set[int]] = [set() for _ in range(len(self.given))]
        for i, stage in self.stage.items():
            recomputed[stage].add(i)
        return recomputed

    def _bring_forward(self, i: int) -> None:
        """What i is computed from is due earlier now."""
        for j in sorted(self.parents[i], reverse=True):
            if j in self.open:
                due = self._just_in_time(j)
                if due != self.stage[j]:
                    self.stage[j] = due
                    self._bring_forward(j)

    def _candidates(self, w: int) -> list[int]:
        """What the window may hide, last needed first: all that is computed from it and could be hidden goes before."""
        time, stage, room, last = self.given.time, self.stage, self.given.time[w], w + self.reach
        fitting = [i for i in self.hideable if time[i] <= room and w < stage[i] <= last and i in self.open]
        return sorted(fitting, key=lambda i: (stage[i], i), reverse=True)

    def _best(self, w: int) -> list[int]:
        """A set of ops that fills the window best, of equals one that is needed last.

        An op is taken only with all that is computed from it and could be hidden here too: `needs`, as bits of places.
        """
        fitting, time, room = self._candidates(w), self.given.time, self.given.time[w]
        places = {i: place for place, i in enumerate(fitting)}
        needs = [sum(1 << places[c] for c in self.children[i] if c in places) for i in fitting[:LOOKED_AT]]
        spent = [time[i] for i in fitting[:LOOKED_AT]]
        behind = list(itertools.accumulate(reversed(spent)))[::-1]
        best, most = 0, 0

        def extend(place: int, used: int, taken: int) -> None:
            nonlocal best, most
            if used > most:
                best, most = taken, used
            for number in range(place, len(spent)):
                if most == room or used + behind[number] <= most:
                    return
                if used + spent[number] <= room and not needs[number] & ~taken:
                    extend(number + 1, used + spent[number], taken | 1 << number)

        extend(0, 0, 0)
        return [i for place, i in enumerate(fitting[:LOOKED_AT]) if best >> place & 1]
