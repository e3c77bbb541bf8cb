"""Hide what is computed again in communications, the last communication first.

What has to be there again at some stage may be computed in any communication before it. So, seen from the end of the
step, an op that can be hidden in one window can be hidden in all windows that come next, as far as memory goes: filling
each window as well as possible, in that order, leaves little unhidden.
"""

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
        self.hidden: set[int] = set()
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
                self.hidden.add(i)
                self.stage[i] = w
                self._bring_forward(i)
        recomputed: list[set[int]] = [set() for _ in range(len(self.given))]
        for i, stage in self.stage.items():
            recomputed[stage].add(i)
        return recomputed

    def _bring_forward(self, i: int) -> None:
        """What i is computed from is due earlier now."""
        for j in sorted(self.parents[i], reverse=True):
            if j not in self.hidden:
                due = self._just_in_time(j)
                if due != self.stage[j]:
                    self.stage[j] = due
                    self._bring_forward(j)

    def _ready(self, i: int, w: int, taken: set[int]) -> bool:
        """All that is computed from it and could be hidden is hidden in this or a later window."""
        return all(c in self.hidden or c in taken or not self._fits(c, w) for c in self.children[i])

    def _fits(self, i: int, w: int) -> bool:
        given = self.given
        return (
            i not in self.hidden
            and not given.comm[i]
            and given.time[i] <= given.time[w]
            and w < self.stage[i] <= w + self.reach
        )

    def _best(self, w: int) -> list[int]:
        """A set of ops that fills the window best, of equals one that is needed last."""
        candidates = sorted((i for i in self.again if self._fits(i, w)), key=lambda i: (-self.stage[i], -i))
        candidates = candidates[:LOOKED_AT]
        best: list[int] = []
        most = 0

        def extend(place: int, left: int, taken: list[int]) -> None:
            nonlocal best, most
            used = self.given.time[w] - left
            if used > most:
                best, most = list(taken), used
            for number in range(place, len(candidates)):
                i = candidates[number]
                if self.given.time[i] <= left and self._ready(i, w, set(taken)):
                    extend(number + 1, left - self.given.time[i], [*taken, i])

        extend(0, self.given.time[w], [])
        return best
