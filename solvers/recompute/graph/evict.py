"""A first plan in a second: run the graph, evict what is cheap and not needed soon, recompute on demand."""

from collections.abc import Callable, Iterator

from solvers.recompute.graph.opt.search.evict import NEVER, inputs_ahead, may_leave, missing
from solvers.recompute.graph.replay import Instance, useful
from solvers.recompute.graph.stages import latest_dependants

WEIGHTS = ((1.0, 1.0), (1.0, 0.5), (0.5, 1.0), (0.0, 1.0))
"""Exponents of (cost to have it again, time until it is needed) in the score of an eviction."""


def evictions(given: Instance, stop: Callable[[], bool]) -> Iterator[list[set[int]]]:
    """Plans as recomputations by stage, one for each of `WEIGHTS` that finds one; none recomputes behind communication.

    The plans fit the budget by construction; replay them all the same. None come once `stop` answers True.
    """
    for cost, wait in WEIGHTS:
        found = _Eviction(given, cost, wait).run(stop)
        if found is not None:
            yield useful(given, found)


class _Eviction:
    """One pass over the stages; `resident` is what the device holds."""

    def __init__(self, given: Instance, cost: float, wait: float) -> None:
        self.given, self.cost_weight, self.wait_weight = given, cost, wait
        self.room = given.budget - given.static
        self.last = latest_dependants(given)
        self.ahead = inputs_ahead(given)
        self.start = [0]
        for time in given.time:
            self.start.append(self.start[-1] + time)
        self.resident: set[int] = set()
        self.level = 0

    def run(self, stop: Callable[[], bool]) -> list[set[int]] | None:
        """What is computed again by stage; None where some step does not fit, or when stopped."""
        recomputed: list[set[int]] = []
        for t in range(len(self.given)):
            if stop():
                return None
            wanted = {*self.given.inputs[t], *self.ahead[t]} - {t}
            again = missing(self.given, self.resident, wanted)
            if again and (self.given.comm[t] or not all(self.given.may_replay(t, i) for i in again)):
                return None
            if not self._stage(t, sorted({t, *again}), wanted):
                return None
            recomputed.append(again)
        return recomputed

    def _stage(self, t: int, order: list[int], wanted: set[int]) -> bool:
        """Run the steps of stage t; False where one does not fit beside what must stay."""
        given = self.given
        final = {j: i for i in order for j in given.inputs[i]}
        for i in order:
            pinned = {*given.inputs[i], *(j for j, user in final.items() if user >= i), *wanted}
            short = self.level + given.size[i] - self.room
            if short > 0 and not self._evict(t, short, pinned):
                return False
            self.resident.add(i)
            self.level += given.size[i]
            for j in (*given.inputs[i], i):
                if self.last[j] <= t and final.get(j, j) <= i and j not in self.ahead[t] and (j != t or j == i):
                    self._drop(j)
        return True

    def _drop(self, j: int) -> None:
        if j in self.resident:
            self.resident.remove(j)
            self.level -= self.given.size[j]

    def _evict(self, t: int, short: int, pinned: set[int]) -> bool:
        """Free `short` bytes, the lowest score first."""
        loose = [j for j in self.resident if j not in pinned and self.given.size[j] > 0 and may_leave(self.given, t, j)]
        if sum(self.given.size[j] for j in loose) < short:
            return False
        needed, cost = self._needed(t), self._cost(t)
        now = self.start[t]

        def score(j: int) -> float:
            wait = max(1, self.start[needed[j]] - now) if needed[j] < len(self.given) else 10 * self.start[-1] + 1
            return float(max(1, cost[j]) ** self.cost_weight / (self.given.size[j] * wait**self.wait_weight))

        for j in sorted(loose, key=lambda j: (score(j), j)):
            self._drop(j)
            short -= self.given.size[j]
            if short <= 0:
                break
        return True

    def _needed(self, t: int) -> list[int]:
        """By op, the next stage that reads it, or reads what must be computed from it again; the count where none."""
        given, count = self.given, len(self.given)
        needed = [count] * (t + 1)
        for i in reversed(range(t + 1)):
            for u in given.users[i]:
                if u >= t:
                    needed[i] = min(needed[i], u)
                    break
                if u not in self.resident:
                    needed[i] = min(needed[i], needed[u])
        return needed

    def _cost(self, t: int) -> list[int]:
        """By op, about what it takes to have it again: its time and that of inputs that are not resident."""
        given = self.given
        cost = [0] * (t + 1)
        for i in range(t + 1):
            known = given.time[i] + sum(cost[j] for j in given.inputs[i] if j not in self.resident)
            cost[i] = min(given.base, known) if given.replay[i] else NEVER * max(1, given.base)
        return cost
