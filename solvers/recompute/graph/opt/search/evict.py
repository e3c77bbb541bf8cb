"""A plan in one pass over the stages: keep what fits, evict what is cheap to have again, recompute on demand."""

import math
import random
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace

from solvers.recompute.graph.replay import Instance
from solvers.recompute.graph.stages import latest_dependants

NEVER = 10
"""What having an output again that cannot be made again costs in the score of an eviction, in times of the base: what
depends on it must then stay, so that it goes last."""


@dataclass(frozen=True)
class Eviction:
    """How a pass chooses what to evict: the least score goes first.

    An output's score is (time to have it again)^cost / (bytes · (time until it is needed)^wait). The time to have it
    again counts at most `deep` ops that are missing as well. `spread`: of the normal distribution of the logarithms of
    the factors by which each op's score differs from that.
    """

    cost: float
    wait: float
    deep: int = 64
    spread: float = 0.0


LOOKED = 32
"""Scores that are brought up to date for an eviction at most."""


def run_through(
    given: Instance, eviction: Eviction, source: random.Random, stop: Callable[[], bool]
) -> list[set[int]] | None:
    """Recomputations by stage, none behind communication; None where some step does not fit, or on `stop`.

    This is dynamic tensor rematerialisation (Kirisame et al. 2021) with the future known. A pass over 10,000 ops takes
    some tenths of a second.
    """
    return _Pass(given, eviction, source).run(stop)


def leave_or_run(
    given: Instance, eviction: Eviction, returns: Sequence[float], stop: Callable[[], bool]
) -> tuple[list[set[int]], set[tuple[int, int]]] | None:
    """The same where outputs may leave for a host, too: (op, last stage that touches it before) of those that do.

    What is missing comes back, at the price `returns` of its op in the unit of times, where to compute it costs more.
    It counts until the end of the stage that touches it last. Then there is a plan from the largest op beside its
    inputs on, but where a stage needs what the one before it has had to give up.
    """
    one = _Pass(given, eviction, random.Random(0), returns)
    found = one.run(stop)
    return None if found is None else (found, one.away)


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
    """One pass over the stages; `resident` is what the device holds.

    `heap` holds it by score, the lowest first. As time goes on scores only grow, but where an output is read or what it
    needs is there again, and then it is entered anew: so the lowest one, brought up to date, is the next to go as long
    as it stays the lowest.
    """

    def __init__(
        self, given: Instance, eviction: Eviction, source: random.Random, returns: Sequence[float] | None = None
    ) -> None:
        self.given, self.eviction, self.returns = given, eviction, returns
        self.touched = [-1] * len(given)
        self.away: set[tuple[int, int]] = set()
        self.back: set[int] = set()
        self.room = given.budget - given.static
        self.last = latest_dependants(given)
        self.ahead = inputs_ahead(given)
        self.start = [0]
        for time in given.time:
            self.start.append(self.start[-1] + time)
        self.resident: set[int] = set()
        self.level = 0
        self.heap: list[tuple[float, int]] = []
        self.known: dict[int, float] = {}
        spread = eviction.spread
        self.worth = [size * math.exp(spread * source.gauss(0, 1)) if spread else size for size in given.size]

    def run(self, stop: Callable[[], bool]) -> list[set[int]] | None:
        """What is computed again by stage; None where some step does not fit, or when stopped."""
        recomputed: list[set[int]] = []
        for t in range(len(self.given)):
            if stop():
                return None
            wanted = {*self.given.inputs[t], *self.ahead[t]} - {t}
            again = self._fetched(t, wanted)
            if again and (self.given.comm[t] or not all(self.given.may_replay(t, i) for i in again)):
                return None
            if not self._stage(t, sorted({t, *again}), wanted):
                return None
            recomputed.append(again)
        return recomputed

    def _fetched(self, t: int, wanted: set[int]) -> set[int]:
        """What is computed again for the wanted; `back` is then what comes back for them."""
        given, self.back = self.given, set()
        if self.returns is None or wanted <= self.resident:
            return missing(given, self.resident, wanted)
        absent, cheap = missing(given, self.resident, wanted), dict[int, float]()
        for i in sorted(absent):
            runs = math.inf
            if given.may_replay(t, i) and not given.comm[t]:
                runs = given.time[i] + sum(cheap[k] for k in given.inputs[i] if k in absent)
            moves = self.returns[i] if self.touched[i] < t - 1 else math.inf
            cheap[i] = min(runs, moves)
            if moves < runs:
                self.back.add(i)
        again = missing(given, self.resident | self.back, wanted)
        self.back &= {j for i in (*again, t) for j in given.inputs[i]} | wanted
        self.away |= {(j, self.touched[j]) for j in self.back}
        return again

    def _stage(self, t: int, order: list[int], wanted: set[int]) -> bool:
        """Run the steps of stage t; False where one does not fit beside what must stay."""
        given = self.given
        final = {j: i for i in order for j in given.inputs[i]}
        pinned = {*wanted, *final}
        for j in sorted(self.back):
            if not self._placed(t, j, pinned):
                return False
        for i in order:
            pinned.add(i)
            if not self._placed(t, i, pinned):
                return False
            for j in (*given.inputs[i], i):
                self.touched[j] = t
            for j in (*given.inputs[i], i):
                if final.get(j, j) > i:
                    continue
                if j not in wanted:
                    pinned.discard(j)
                if self.last[j] <= t and j not in self.ahead[t]:
                    self._drop(j)
                elif j in self.resident:
                    self._enter(t, j)
        for i in order[:-1]:
            for u in given.users[i]:
                if u in self.resident:
                    self._enter(t, u)
        return True

    def _placed(self, t: int, i: int, pinned: set[int]) -> bool:
        """Make room for op i's output and put it there; False where there is none."""
        short = self.level + self.given.size[i] - self.room
        if short > 0 and not self._evict(t, short, pinned):
            return False
        self.resident.add(i)
        self.level += self.given.size[i]
        return True

    def _drop(self, j: int) -> None:
        if j in self.resident:
            self.resident.remove(j)
            self.level -= self.given.size[j]

    def _enter(self, t: int, j: int) -> None:
        if self.given.size[j] > 0:
            self.known[j] = self._score(t, j)
            heappush(self.heap, (self.known[j], j))

    def _evict(self, t: int, short: int, pinned: set[int]) -> bool:
        """Free `short` bytes, the lowest score first; False where there are not as many."""
        aside: list[tuple[float, int]] = []
        while short > 0:
            found = self._lowest(t, pinned, aside)
            if found is None:
                return False
            self._drop(found)
            short -= self.given.size[found]
        for entry in aside:
            heappush(self.heap, entry)
        return True

    def _lowest(self, t: int, pinned: set[int], aside: list[tuple[float, int]]) -> int | None:
        """The output of the lowest score that may go; None where none may. What is pinned is put aside."""
        heap, best, looked = self.heap, None, 0
        while heap:
            known, j = heap[0]
            if j not in self.resident or self.known[j] != known or not may_leave(self.given, t, j):
                heappop(heap)
                continue
            if j in pinned or (self.returns is not None and self.touched[j] == t):
                aside.append(heappop(heap))
                continue
            score = self._score(t, j)
            best = min(best, (score, j)) if best is not None else (score, j)
            if score <= known or looked == LOOKED:
                return best[1]
            self.known[j] = score
            heapreplace(heap, (score, j))
            looked += 1
        return None

    def _score(self, t: int, j: int) -> float:
        needed = self._needed(t, j)
        wait = max(1, self.start[needed] - self.start[t]) if needed < len(self.given) else 10 * self.start[-1] + 1
        cost = self._cost(j) if self.returns is None else min(self._cost(j), self.returns[j])
        return float(max(1, cost) ** self.eviction.cost / (self.worth[j] * wait**self.eviction.wait))

    def _needed(self, t: int, j: int) -> int:
        """The next stage behind t that reads op j, or what must be computed from it again; the count where none."""
        given, found, stack, seen, most = self.given, len(self.given), [j], {j}, self.eviction.deep // 8
        while stack:
            users = given.users[stack.pop()]
            place = bisect_right(users, t)
            if place < len(users):
                found = min(found, users[place])
            for u in users[max(0, place - most) : place]:
                if u not in self.resident and u not in seen and self.last[u] > t and len(seen) < most:
                    seen.add(u)
                    stack.append(u)
        return found

    def _cost(self, j: int) -> int:
        """About what it takes to have op j again: its time and that of what is missing for it."""
        given, cost, stack, seen = self.given, 0, [j], {j}
        while stack:
            i = stack.pop()
            cost += given.time[i] if given.replay[i] else NEVER * max(1, given.base)
            for k in given.inputs[i]:
                if k not in self.resident and k not in seen and len(seen) < self.eviction.deep:
                    seen.add(k)
                    stack.append(k)
        return cost
