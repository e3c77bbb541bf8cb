"""A plan in one pass over the stages: keep what fits, evict what is cheap to have again, recompute on demand."""

import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from solvers.recompute.graph.replay import Instance
from solvers.recompute.graph.stages import latest_dependants

NEVER = 10
"""What having an output again that cannot be made again costs in the score of an eviction, in times of the base: what
depends on it must then stay, so that it goes last."""


@dataclass(frozen=True)
class Eviction:
    """How a pass chooses what to evict.

    An output's score is (time to have it again)^cost / (bytes · (time until it is needed)^wait): among `compared` drawn
    at random the least goes first. The time to have it again counts at most `deep` ops that are missing as well.
    """

    cost: float
    wait: float
    compared: int = 32
    deep: int = 24


def run_through(
    given: Instance, eviction: Eviction, source: random.Random, stop: Callable[[], bool]
) -> list[set[int]] | None:
    """Recomputations by stage, none behind communication; None where some step does not fit, or on `stop`.

    This is dynamic tensor rematerialisation (Kirisame et al. 2021) with the future known.
    """
    return _Pass(given, eviction, source).run(stop)


def missing(given: Instance, resident: Collection[int], wanted: Iterable[int]) -> set[int]:
    """What of the wanted is not resident, with its inputs that are not either."""
    found: set[int] = set()
    stack = [j for j in wanted if j not in resident]
    while stack:
        i = stack.pop()
        if i not in found:
            found.add(i)
            stack += [j for j in given.inputs[i] if j not in resident]
    return found


def inputs_ahead(given: Instance) -> list[set[int]]:
    """By stage, what the unbroken run of communications right after it reads: it must be there when they begin."""
    count = len(given)
    ahead: list[set[int]] = [set() for _ in range(count)]
    for t in reversed(range(count - 1)):
        if given.comm[t + 1]:
            ahead[t] = {j for j in {*given.inputs[t + 1], *ahead[t + 1]} if j <= t}
    return ahead


def may_leave(given: Instance, t: int, j: int) -> bool:
    """Whether op j's output may go in stage t: every later op that reads it can have it computed again."""
    users = given.users[j]
    place = bisect_right(users, t)
    return place == len(users) or given.may_replay(users[place], j)


class _Pass:
    """One pass; `resident` is what the device holds, `level` its bytes."""

    def __init__(self, given: Instance, eviction: Eviction, source: random.Random) -> None:
        self.given, self.eviction, self.source = given, eviction, source
        self.room = given.budget - given.static
        self.ahead = inputs_ahead(given)
        self.start = [0]
        for time_us in given.time:
            self.start.append(self.start[-1] + time_us)
        self.last = latest_dependants(given)
        self.resident: set[int] = set()
        self.level = 0
        self.needs: dict[int, int] = {}

    def run(self, stop: Callable[[], bool]) -> list[set[int]] | None:
        """All stages in order; None where one does not fit."""
        recomputed: list[set[int]] = []
        for t in range(len(self.given)):
            self.needs.clear()
            wanted = {*self.given.inputs[t], *self.ahead[t]} - {t}
            again = missing(self.given, self.resident, wanted)
            refused = again and (self.given.comm[t] or not all(self.given.may_replay(t, i) for i in again))
            if stop() or refused or not self._stage(t, sorted({t, *again}), wanted):
                return None
            recomputed.append(again)
        return recomputed

    def _stage(self, t: int, order: list[int], wanted: set[int]) -> bool:
        """Run the steps of stage t, evicting before each what its output displaces; False where one does not fit."""
        given = self.given
        final = {j: i for i in order for j in given.inputs[i]}
        pinned = {t, *wanted, *final}
        for i in order:
            pinned.add(i)
            short = self.level + given.size[i] - self.room
            if short > 0 and not self._evict(t, short, pinned):
                return False
            self.resident.add(i)
            self.level += given.size[i]
            for j in (*given.inputs[i], i):
                if final.get(j, i) == i and j not in wanted and j != t:
                    pinned.discard(j)
                if self.last[j] <= t and final.get(j, j) <= i and j not in self.ahead[t] and (j != t or j == i):
                    self._drop(j)
        return True

    def _drop(self, j: int) -> None:
        if j in self.resident:
            self.resident.remove(j)
            self.level -= self.given.size[j]

    def _evict(self, t: int, short: int, pinned: set[int]) -> bool:
        """Free `short` bytes, the lowest score first, some outputs at a time; False where they are not enough."""
        size, compared = self.given.size, self.eviction.compared
        loose = [j for j in self.resident if size[j] and j not in pinned and may_leave(self.given, t, j)]
        if sum(size[j] for j in loose) < short:
            return False
        loose.sort()
        self.source.shuffle(loose)
        while short > 0:
            some = sorted([(self._score(t, j), j) for j in loose[-compared:]], reverse=True)
            del loose[-compared:]
            while short > 0 and some and (not loose or len(some) > compared // 2):
                _, j = some.pop()
                self._drop(j)
                for k in self.given.inputs[j]:
                    self.needs.pop(k, None)
                short -= size[j]
            loose += [j for _, j in some]
        return True

    def _score(self, t: int, j: int) -> float:
        needed = self._needed(t, j)
        wait = self.start[needed] - self.start[t] if needed < len(self.given) else 10 * self.start[-1]
        bytes_by_wait: float = self.given.size[j] * float(max(1, wait)) ** self.eviction.wait
        cost: float = float(max(1, self._cost(j))) ** self.eviction.cost
        return cost / bytes_by_wait

    def _needed(self, t: int, j: int) -> int:
        """The next stage that reads op j, or reads what must be computed from it again; the count where none."""
        needs, found = self.needs, self.needs.get(j)
        if found is not None:
            return found
        waiting = [j]  # not by recursion: chains of ops may be longer than Python's stack
        while waiting:
            i = waiting[-1]
            users = self.given.users[i]
            place = bisect_left(users, t)
            absent = [u for u in users[:place] if u not in self.resident and self.last[u] > t]
            unknown = [u for u in absent if u not in needs]
            if unknown:
                waiting += unknown
                continue
            first = users[place] if place < len(users) else len(self.given)
            needs[i] = min([first, *(needs[u] for u in absent)])
            waiting.pop()
        return needs[j]

    def _cost(self, j: int) -> int:
        """About what it takes to have op j again: its time and that of what is missing for it."""
        given, deep, cost, stack, seen = self.given, self.eviction.deep, 0, [j], {j}
        while stack:
            i = stack.pop()
            cost += given.time[i] if given.replay[i] else NEVER * max(1, given.base)
            for k in given.inputs[i]:
                if k not in self.resident and k not in seen and len(seen) < deep:
                    seen.add(k)
                    stack.append(k)
        return cost
