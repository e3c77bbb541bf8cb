"""The 1F1B recurrence F5 round by round: one pass gives the time of every number of microbatches (README, estimator).

Until a stage's last forward is done, nothing that it does depends on how many microbatches there are. From there on
only backwards are left, and read from the end they are the warm-up of the same pipeline with forward and backward
exchanged. So T(m) is the largest of P sums, one a stage: the end of what does not depend on m, plus the way left.
"""

from collections import deque
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
    """K pipelines of one depth P, advanced level by level; arrays are [stage, pipeline]."""

    def __init__(self, forward: IntArray, backward: IntArray, p2p_us: int) -> None:
        self.depth, self.count = forward.shape
        self.forward, self.backward, self.p2p_us = forward, backward, p2p_us

    def rounds(self, most: int) -> Rounds:
        """T(0)…T(most), and the states that say how T goes on from there.

        T(m) looks at levels 2m − P to 2m − 1: a state of q rounds before level 2n + 2 − P counts for all m > n − q.
        """
        times = np.zeros((most + 2 * self.depth, self.count), dtype=np.int64)
        ends, left = self._warm_up(times)
        states: deque[IntArray] = deque(maxlen=self.depth + 1)
        for level in range(1, 2 * most):
            self._advance(ends, left, level, times)
            if level % 2 and self.depth <= level <= 2 * most + 2 - self.depth:
                states.append(ends[1:-1].copy())
        return Rounds(times[: most + 1], tuple(states))

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

    def _advance(self, ends: IntArray, left: IntArray, level: int, times: IntArray) -> None:
        """A level of the steady phase: stages P − level, P − level + 2, … go back, those between go forward.

        Stage s with w = P − 1 − s ends B(j) at level w + 1 + 2j, after which T(j + w + 1) has `left` to go.
        """
        depth = self.depth
        back = depth - level if level <= depth else (depth - level) % 2
        ahead = back + 1 if level <= depth else 1 - back
        backs, aheads = slice(back + 1, depth + 1, 2), slice(ahead + 1, depth + 1, 2)
        returned = np.maximum(ends[backs], ends[back + 2 : depth + 2 : 2] + self.p2p_us) + self.backward[back::2]
        started = np.maximum(ends[aheads], ends[ahead:depth:2] + self.p2p_us) + self.forward[ahead::2]
        ends[backs], ends[aheads] = returned, started
        highest = (level + depth - back) // 2
        told = slice(highest + 1 - len(returned), highest + 1)
        times[told] = np.maximum(times[told], (returned + left[back::2])[::-1])
