"""Where the certified tree splits a part of all decisions: at a sum, or where swapped blocks hold loads up."""

from collections.abc import Callable, Mapping

import numpy as np

from solvers.engines.model import BoolArray, FloatArray
from solvers.layout.evaluate import Instance
from solvers.layout.exact.model import Relaxation

Limits = dict[str, tuple[int, int]]
Place = tuple[str, int]
"""A column, and the largest value of its lower half."""
Split = Callable[[FloatArray, Limits, float], Place | None]
"""From a solution, the limits within which it was found, and its end: where to split; None where all is whole."""

SUMS = 4
"""Number of whole columns that are sums, the first ones: checkpoints, swaps, persistent chunks, buffers."""
FRACTION = 1e-5
"""A value this close to a whole number is taken as that number."""
REACH = 4
"""Found chunks are known well enough where they reach back to one of so many."""
TAIL = 2
"""Chunks whose gradients are reduced last: whether they persist decides how long the step goes on after backward."""
WORTH = 0.1
"""A window is split if its rows, were one of its blocks swapped, are broken by this share of what is open at least."""


def fractional(whole: Mapping[str, int], x: FloatArray) -> Place | None:
    """The most fractional sum, else the most fractional of all others."""
    keys = list(whole)
    for group in (keys[:SUMS], keys[SUMS:]):
        values = x[[whole[key] for key in group]]
        place = int(np.argmax(np.abs(values - np.round(values))))
        if abs(values[place] - round(values[place])) > FRACTION:
            return group[place], int(np.floor(values[place]))
    return None


class QueueSplits:
    """First how far back found chunks reach, then windows of blocks that would hold up most, then sums.

    A window is looked at as if one of its blocks were swapped: by how much would the network, or the loads, end later
    than they do in the solution?
    """

    def __init__(self, given: Instance, relaxation: Relaxation, most_us: int) -> None:
        assert relaxation.lanes is not None and relaxation.queued is not None
        self.whole, self.most_us = relaxation.whole, most_us
        self.lanes, self.queued = relaxation.lanes, relaxation.queued
        problem, self.turn = given.problem, 2 * len(given.problem.blocks) - 1
        self.persistent, self.swapped = relaxation.persistent, np.array(relaxation.swapped)
        self.asked = self.turn - np.array(given.last)
        self.complete = self.turn - np.array(given.first)
        chunks = problem.chunks
        self.gather = np.array([float(chunk.gather_us) for chunk in chunks])
        self.load = np.array([float(chunk.load_us) for chunk in chunks])
        self.reduce = np.array([float(chunk.reduce_us * chunk.trainable) for chunk in chunks])
        self.all_reduce = np.array([float(chunk.allreduce_us * chunk.trainable) for chunk in chunks])
        self.swap_in = np.array([float(block.swap_in_us) for block in problem.blocks])
        self.last = max((self.turn - given.first[c] for c in self.lanes.order[-1:]), default=self.turn)

    def __call__(self, x: FloatArray, limits: Limits, end_us: float) -> Place | None:
        """Where to split."""
        return self._reached(limits) or self._window(x, limits, end_us) or self._tail(x) or fractional(self.whole, x)

    def _reached(self, limits: Limits) -> Place | None:
        """The middle of the chunks to which those found may reach back."""
        order = self.queued.order
        known = [limits.get(f"reach/{chunk}", (0, 1)) for chunk in order]
        low = max((place for place, limit in enumerate(known) if limit == (0, 0)), default=-1)
        high = min((place for place, limit in enumerate(known) if limit == (1, 1)), default=len(order))
        return (f"reach/{order[(low + high) // 2]}", 0) if high - low > REACH else None

    def _window(self, x: FloatArray, limits: Limits, end_us: float) -> Place | None:
        """The widest window that would prove all that is open, else the single block that would prove most."""
        open_us, best = self.most_us - end_us, dict[int, tuple[float, str]]()
        none = self._never(limits)
        for window, later_us in zip(self.queued.windows, self._later_us(x).tolist(), strict=True):
            width = window.last - window.first + 1
            free = window.key not in limits and not none[window.first : window.last + 1].any()
            if free and later_us > best.get(width, (0.0, ""))[0]:
                best[width] = later_us, window.key
        for width in sorted(best, reverse=True):
            later_us, key = best[width]
            if later_us > (open_us if width > 1 else WORTH * open_us):
                return key, 0
        return None

    def _never(self, limits: Limits) -> BoolArray:
        """The blocks that no decision within the limits swaps."""
        none = np.zeros(len(self.swapped), dtype=np.bool_)
        for window in self.queued.windows:
            if limits.get(window.key) == (0, 0):
                none[window.first : window.last + 1] = True
        return none

    def _later_us(self, x: FloatArray) -> FloatArray:
        """By how much the last reduction, or the last load, would end later if a window had a swapped block."""
        away = 1 - x[self.persistent]
        missing = np.maximum(0, away - x[self.lanes.found])
        net, loads, passes = (np.zeros(self.turn + 1) for _ in range(3))
        np.add.at(net, self.asked, self.gather * missing)
        np.add.at(loads, self.asked, self.load * missing)
        loads += np.concatenate([np.zeros(len(self.swapped)), (self.swap_in * x[self.swapped])[::-1]])
        np.add.at(passes, self.complete, self.reduce * away + self.all_reduce * (1 - away))
        net, loads, passes = np.cumsum(net), np.cumsum(loads), np.cumsum(passes)
        rooms = np.array([window.room for window in self.queued.windows], dtype=np.int64)
        behind = np.array([window.behind for window in self.queued.windows], dtype=np.int64)
        ends = x[self.lanes.end][rooms]
        by_load: FloatArray = ends + loads[-1] - loads[behind] - x[self.lanes.into[-1]]
        if not self.lanes.order:
            return by_load
        since = (
            net[self.last]
            - net[np.minimum(behind, self.last)]
            + passes[self.last]
            - np.concatenate([[0], passes])[rooms]
        )
        by_net: FloatArray = ends + since - x[self.lanes.reduced[-1]]
        return np.maximum(by_load, by_net)

    def _tail(self, x: FloatArray) -> Place | None:
        """A chunk that is reduced last, where it is neither persistent nor away."""
        for chunk in reversed(self.lanes.order[-TAIL:]):
            if abs(x[self.persistent[chunk]] - round(x[self.persistent[chunk]])) > FRACTION:
                return f"persistent/{chunk}", 0
        return None
