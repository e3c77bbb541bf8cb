"""The 1F1B recurrence F5 round by round: one pass gives the time of every number of microbatches (README, estimator).

Until a stage's last forward is done, nothing that it does depends on how many microbatches there are. From there on
only backwards are left, and read from the end they are the warm-up of the same pipeline with forward and backward
exchanged. So T(m) is the largest of P sums, one a stage: the end of what does not depend on m, plus the way left.
"""

from collections import deque
from copy import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rounds:
    """T(0)…T(n) of K pipelines, `times_us` [n + 1, K], and the ends of all stages [P, K] after some late rounds."""

    times_us: IntArray
    states: tuple[IntArray, ...]

    def at(self, counts: IntArray) -> IntArray:
        """T at `counts` [J, K or 1]; beyond n only for pipelines that are `periodic`."""
        last = self.times_us.shape[0] - 1
        if counts.max() <= last:
            return np.asarray(np.take_along_axis(self.times_us, counts, axis=0))
        period, gain = self._periods
        turns = -(-np.maximum(counts - last, 0) // np.maximum(period, 1))
        known = np.clip(counts - turns * period, 0, last)
        return np.asarray(np.take_along_axis(self.times_us, known, axis=0) + turns * gain)

    @property
    def periodic(self) -> npt.NDArray[np.bool_]:
        """Which pipelines are known to go on with T(m + q) = T(m) + gain for all m > n − q, [K]."""
        return self._periods[0] > 0

    @cached_property
    def _periods(self) -> tuple[IntArray, IntArray]:
        """The least q ≤ P for which all stages ended equally much later than q rounds before, and that gain; 0 if none.

        A state decides the next ones, and they move with it when all its entries grow alike: so it goes on for ever.
        """
        period, gain = np.zeros((2, self.times_us.shape[1]), dtype=np.int64)
        for turns in range(len(self.states) - 1, 0, -1):
            later = self.states[-1] - self.states[-1 - turns]
            alike = (later == later[0]).all(axis=0)
            period[alike], gain[alike] = turns, later[0, alike]
        return period, gain


class Pipelines:
    """K pipelines of one depth P, advanced level by level, as far as is asked; arrays are [stage, pipeline]."""

    def __init__(self, forward: IntArray, backward: IntArray, p2p_us: int) -> None:
        self.depth, self.count = forward.shape
        self.forward, self.backward, self.p2p_us = forward, backward, p2p_us
        self._times = np.zeros((2 * self.depth, self.count), dtype=np.int64)
        self._ends, self._left = self._warm_up(self._times)
        self._next_level = 1
        self._states = deque[tuple[int, IntArray]](maxlen=self.depth + self.depth // 2 + 2)

    def rounds(self, most: int) -> Rounds:
        """T(0)…T(most), and the states that say how T goes on from there; `most` never falls from call to call.

        T(m) looks at levels 2m − P to 2m − 1: a state of q rounds before level 2n + 2 − P counts for all m > n − q.
        """
        times, ends = np.zeros((most + 2 * self.depth, self.count), dtype=np.int64), self._ends
        times[: len(self._times)] = self._times
        turns = [_Turn(self, ends, back, 1 - back) for back in (0, 1)]
        for level in range(self._next_level, 2 * most):
            if level < self.depth:
                _Turn(self, ends, self.depth - level, self.depth - level + 1).advance(level, times)
            else:
                turns[(self.depth - level) % 2].advance(level, times)
            if level % 2 and level >= self.depth:
                self._states.append((level, ends[1:-1].copy()))
        self._times, self._next_level = times, max(self._next_level, 2 * most)
        settled = [state for level, state in self._states if level <= 2 * most + 2 - self.depth]
        return Rounds(times[: most + 1], tuple(settled[-self.depth - 1 :]))

    def chosen(self, which: IntArray) -> "Pipelines":
        """Some of the pipelines, as far as they have been advanced."""
        some = copy(self)
        some.count = len(which)
        some.forward, some.backward = self.forward.take(which, 1), self.backward.take(which, 1)
        some._times, some._ends, some._left = (t.take(which, 1) for t in (self._times, self._ends, self._left))
        some._states = deque(((level, state.take(which, 1)) for level, state in self._states), self._states.maxlen)
        return some

    @property
    def left(self) -> IntArray:
        """The way left behind each stage's steady backwards."""
        return self._left

    def _warm_up(self, times: IntArray) -> tuple[IntArray, IntArray]:
        """The ends of the last warm-up forwards (a row of −p2p on either side), and the way left behind each stage.

        After level k stage s ≤ k has done k − s + 1 forwards. Seen from the end, as many backwards are left: where
        m = k − s + 1 microbatches are fewer than a stage's warm-up, the two meet.
        """
        ends, ways = self._still(), self._still()
        left = np.zeros((self.depth, self.count), dtype=np.int64)
        for level in range(self.depth):
            done = slice(1, level + 2)
            for now, passes in ((ends, self.forward), (ways, self.backward)):
                now[done] = np.maximum(now[done], now[: level + 1] + self.p2p_us) + passes[: level + 1]
            if level < self.depth - 1:
                met = (ends[done] + ways[done])[::-1]
                np.maximum(times[1 : level + 2], met, out=times[1 : level + 2])
            if level == self.depth - 2:
                left[:-1] = ways[1:-2]
        left[1:] = np.maximum(left[1:], left[:-1] + self.p2p_us)
        return ends, left

    def _still(self) -> IntArray:
        """The state before the first pass; a neighbour that does not exist never delays."""
        ends = np.zeros((self.depth + 2, self.count), dtype=np.int64)
        ends[[0, -1]] = -self.p2p_us
        return ends


class _Turn:
    """A level of the steady phase: stages `back`, `back` + 2, … go back, `ahead`, `ahead` + 2, … go forward.

    At level k `back` is P − k and `ahead` the next or, from k = P on, one is 0 and the other 1. Stage s with w = P − 1
    − s ends B(j) at level w + 1 + 2j, after which T(j + w + 1) has `left` to go. A stage that goes back has waited for
    the next one, which goes forward and has waited for it: so stages work in pairs, [pair, back or forward, pipeline],
    and where a neighbour does not exist the row beside all stages stands for it.
    """

    def __init__(self, pipelines: Pipelines, ends: IntArray, back: int, ahead: int) -> None:
        depth, first = pipelines.depth, back + 1 if back < ahead else 0
        pairs = (depth + 2 - first) // 2
        rows = slice(first, first + 2 * pairs)
        beside = np.zeros((1, pipelines.count), dtype=np.int64)
        backward, forward = (np.concatenate([beside, t, beside]) for t in (pipelines.backward, pipelines.forward))
        self._passes = np.stack([backward[rows][::2], forward[rows][1::2]], axis=1)
        self._pairs = ends[rows].reshape(pairs, 2, pipelines.count)
        self._others, self._next = self._pairs[:, ::-1], np.empty_like(self._pairs)
        self._returned = self._pairs[0 if first else 1 :, 0]
        self._left, self._told = pipelines.left[back::2], np.empty_like(self._returned)
        self._beside = ends[:: depth + 1]
        self._depth, self._back, self._p2p_us = depth, back, pipelines.p2p_us

    def advance(self, level: int, times: IntArray) -> None:
        """Everyone's next pass; T of the microbatches that this makes the last ones is told."""
        np.add(self._others, self._p2p_us, out=self._next)
        np.maximum(self._pairs, self._next, out=self._next)
        np.add(self._next, self._passes, out=self._pairs)
        self._beside[...] = -self._p2p_us
        highest = (level + self._depth - self._back) // 2
        told = times[highest + 1 - len(self._told) : highest + 1]
        np.add(self._returned, self._left, out=self._told)
        np.maximum(told, self._told[::-1], out=told)
