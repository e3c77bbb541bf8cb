"""What no plan ends before, without an engine: bytes that must be away cross the link (README, model C)."""

import math

import numpy as np

from solvers.swap.evaluate import Instance

MOST_OPS = 12_000
"""Of more ops that matter some are left out, evenly: the time grows with their square, to a second or two here."""
OPS_A_SECOND = 7_000
"""So many ops that matter take a second at the most, on a slow and busy machine."""


def floor_ticks(given: Instance, time_s: float = math.inf) -> float:
    """A bound on every plan's makespan in ticks, by (C1) to (C3); weaker where there is no time for all ops."""
    uses = sorted({*given.busy, *given.first, *given.last})
    if not given.busy:
        return float(given.base)
    most = min(MOST_OPS, int(OPS_A_SECOND * math.sqrt(min(9.0, max(0.0, time_s)))))
    if len(uses) > most:
        heaviest = max(given.busy, key=given.need.__getitem__)
        uses = sorted({heaviest, *(uses[len(uses) * part // most] for part in range(most))})
    return _Floor(given, uses).run()


class _Floor:
    """One pass over the ops that matter; index q of every array stands for the op `ops[q]`."""

    def __init__(self, given: Instance, uses: list[int]) -> None:
        self.given, self.ops = given, np.array(uses)
        size = np.array(given.size, dtype=np.float64)
        self.out_rate, self.in_rate = _fastest(given, given.out_time), _fastest(given, given.in_time)
        first = np.searchsorted(self.ops, np.array(given.first), side="right")
        last = np.searchsorted(self.ops, np.array(given.last))
        order = np.argsort(last, kind="stable")
        self.first, self.last, self.size = first[order], last[order], size[order]
        # Bytes that may be away and had left before the end of op q: those whose last forward use lies before q.
        self.early = np.cumsum(np.bincount(first, weights=size, minlength=len(uses) + 1))[: len(uses)]
        self.need = np.array(given.need, dtype=np.float64)[self.ops]

    def run(self) -> float:
        """The end of the step: each op no earlier than the link has moved what must be away, or must be back."""
        given, end = self.given, np.zeros(len(self.ops))
        clock, previous, gone = 0.0, -1, 0
        for place, op in enumerate(self.ops.tolist()):
            clock = max(clock + given.before[op] - given.before[previous + 1], float(given.unswapped[op]))
            returns = gone
            while gone < len(self.last) and self.last[gone] == place:
                self.early[self.first[gone] :] -= self.size[gone]
                gone += 1
            if place and self.need[place] > 0:
                clock = max(clock, _latest(end[:place], self.need[place] - self.early[:place], self.out_rate))
            if place and gone > returns:
                must = np.where(self.need[:place] > 0, self.need[:place] - self.early[:place], 0.0)
                clock = max(clock, _latest(end[:place], must, self.in_rate))
            clock = end[place] = max(clock + given.time[op], float(given.unswapped[op + 1]))
            previous = op
        return max(float(given.base), clock + given.before[-1] - given.before[previous + 1])


def _latest(end: np.ndarray, moved: np.ndarray, rate: float) -> float:
    """When the last of these amounts has moved, each at the lane's rate and from its own time on."""
    return float(np.max(np.where(moved > 0, end + moved / rate, 0.0)))


def _fastest(given: Instance, transfer: list[int]) -> float:
    """Bytes a tick, the most that any tensor travels at."""
    return max((size / time for size, time in zip(given.size, transfer, strict=True) if time), default=math.inf)
