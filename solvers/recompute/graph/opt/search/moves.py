"""Moves between plans: keep an output instead of computing it again, the reverse, or compute it in another stage."""

import math
import random
from bisect import bisect_left, bisect_right

import numpy as np

from solvers.recompute.graph.opt.search.state import State

DRAWS = 12
"""Random draws for each output that an eviction shall compare."""
FRESH = 0.1
"""Probability that an input is recomputed although there is room to keep it until it is needed."""
NEAR = 8
"""Stages before a need that are tried where the need's own stage may not compute."""
ANYWHERE = 0.1
"""Probability that any stage is drawn."""
HIDE = 0.7
"""Probability that a communication is tried first."""
SKIP = 0.4
"""Probability that a communication with room is skipped for an earlier one."""


class Moves:
    """Random changes of a state; `compared` outputs compete for each eviction."""

    def __init__(self, state: State, source: random.Random, compared: int = 6) -> None:
        self.state, self.given, self.source, self.compared = state, state.given, source, compared
        self.pool = [v for v, size in enumerate(self.given.size) if size > 0 and self.given.replay[v]]
        self.windows = [t for t, comm in enumerate(self.given.comm) if comm]

    def shift(self, t: int, v: int) -> bool:
        """Compute op v in another stage than t for the same readers; False where that may not be."""
        state = self.state
        before = state.start_at(v, t - 1)
        state.remove(t, v)
        state.drop_unread()
        need = state.next_use(v, t)
        if need == len(self.given):
            return True
        stage = self.place(v, max(before, state.last_use(v, before, need)), need)
        return stage is not None and self.compute(stage, v)

    def allowed(self, t: int, v: int) -> bool:
        """Whether stage t may compute op v again, memory apart."""
        given, state = self.given, self.state
        if v >= t or v in state.again[t] or not given.may_replay(t, v):
            return False
        if not given.comm[t]:
            return True
        return not given.comm[v] and state.spent[t] + given.time[v] <= given.time[t] and v not in given.inputs[t]

    def compute(self, t: int, v: int) -> bool:
        """Compute op v again in stage t, with inputs that cannot be kept until then; False where that may not be."""
        given, state, source = self.given, self.state, self.source
        levels, stack = state.kept + state.extra, [v]
        while stack:
            i = stack.pop()
            if i in state.again[t]:
                continue
            if not self.allowed(t, i):
                return False
            for j in given.inputs[i]:
                end = state.until[j][state.start_at(j, t)]
                if (
                    end < t
                    and given.replay[j]
                    and (source.random() < FRESH or given.size[j] > given.budget - int(levels[end + 1 : t + 1].max()))
                ):
                    stack.append(j)
            state.add(t, i)
        return True

    def place(self, v: int, after: int, need: int) -> int | None:
        """A stage in (after, need] to compute op v for a reader in stage `need`: a communication, any one, or late."""
        source = self.source
        if source.random() < ANYWHERE:
            return source.randint(after + 1, need)
        if not self.given.comm[v] and source.random() < HIDE:
            low, high = bisect_right(self.windows, after), bisect_right(self.windows, need)
            for t in self.windows[max(low, high - 2 * NEAR) : high][::-1]:
                if self.allowed(t, v) and source.random() >= SKIP:
                    return t
        return next((t for t in range(need, max(after, need - NEAR), -1) if self.allowed(t, v)), None)

    def evict(self, s: int, spared: int = -1) -> bool:
        """Free memory in stage s: some output kept across it is computed again for its next reader."""
        chosen = self._cheapest(s, spared)
        if chosen is None:
            return False
        v, after, need = chosen
        stage = self.place(v, after, need)
        return stage is not None and self.compute(stage, v)

    def _cheapest(self, s: int, spared: int) -> tuple[int, int, int] | None:
        """(op, last stage that uses it before s, first one after): among some, the least time a byte that is too much.

        The bytes count in each stage in between; where stage s fits, all bytes count once.
        """
        source, pool, size, state = self.source, self.pool, self.given.size, self.state
        top, best, found, least = bisect_left(pool, s), None, 0, 0.0
        above = np.maximum(state.levels() - self.given.budget, 0)
        fits = above[s] == 0
        for _ in range(DRAWS * self.compared if top else 0):
            v = pool[int(source.random() * top)]
            gap = self.gap(v, s) if v != spared else None
            if gap is None:
                continue
            after, need = gap
            gain = size[v] if fits else int(np.minimum(above[after + 1 : need], size[v]).sum())
            score = self._again(v, need) / gain * (0.3 + source.random())
            if best is None or score < least:
                best, least = (v, after, need), score
            found += 1
            if found == self.compared:
                break
        return best

    def gap(self, v: int, s: int) -> tuple[int, int] | None:
        """The last stage before s that computes or reads op v, and the next reader; None where s does, or none keeps v.

        Between the two, op v is kept across stage s for nothing but the next reader.
        """
        state = self.state
        start = state.start_at(v, s)
        if start == s or state.until[v][start] <= s:
            return None
        last = state.last_use(v, start, s + 1)
        return None if last == s else (max(last, start), state.next_use(v, s + 1))

    def _again(self, v: int, t: int) -> int:
        """About the time to compute op v in stage t, at least 1: its own and that of inputs not kept until then."""
        state, time_us = self.state, self.given.time
        missing = (j for j in self.given.inputs[v] if state.until[j][state.start_at(j, t)] < t)
        return 1 + time_us[v] + sum(time_us[j] for j in missing)

    def repair(self, most: int, dearest: float = math.inf, spared: int = -1) -> bool:
        """Evict in the fullest stage until every stage fits, `most` times at most; answers whether they do.

        It gives up where the state costs more than `dearest`.
        """
        state, budget = self.state, self.given.budget
        for left in reversed(range(most + 1)):
            state.drop_unread()
            if state.cost > dearest:
                return False
            levels = state.levels()
            fullest = int(levels.argmax())
            if levels[fullest] <= budget:
                return True
            if left == 0 or not self.evict(fullest, spared):
                return False
        return False
