"""All nondominated policies of a layer, op by op: dynamic programming over what the ops to come can see (README, E)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solvers.recompute.layer.layer import HIDDEN_COPIES, Layer
from solvers.recompute.layer.pareto import IntArray, TooManyStates, nondominated

ABSENT, STORED = -2, -1
"""What is done with an op that no window and no critical path recomputes."""
MAX_SUMS = 4096
"""The most subset sums of later times that are listed; beyond, time left in a window is only capped."""
LARGEST = 2**61
"""Coordinates beyond would leave 64 bits: such layers are refused."""
DEAD = 0


@dataclass(frozen=True)
class Level:
    """The choices for one op: for each surviving partial policy its parent and what is done with the op."""

    op: int
    parent: IntArray
    choice: IntArray


@dataclass(frozen=True)
class Policies:
    """Nondominated policies: coordinates, one column each, and the levels that tell what each does."""

    coordinates: IntArray
    levels: tuple[Level, ...]

    def choices(self, column: int) -> dict[int, int]:
        """Op → window (or critical path, or STORED, ABSENT) of one policy."""
        found = {}
        for level in reversed(self.levels):
            found[level.op] = int(level.choice[column])
            column = int(level.parent[column])
        return found


def enumerate_policies(
    layer: Layer,
    weights: npt.ArrayLike,
    max_states: int = 400_000,
    stop: Callable[[], bool] = lambda: False,
) -> Policies:
    """The policies nondominated in (time on the critical path, W·(stored, forward, working bytes)[, time in windows]).

    `weights` W is a non-negative matrix with three columns, one row for each memory coordinate; the last coordinate, of
    layers that are `late`, is the time in backward windows. Raises
    `TooManyStates` once `max_states` partial policies were made or `stop()` says so, and OverflowError where sizes do
    not fit 64 bits.
    """
    matrix = np.array(weights, dtype=object)
    sizes, times = sum(op.output_bytes for op in layer.ops), sum(op.time_us for op in layer.ops)
    if max(sizes * HIDDEN_COPIES * int(matrix.sum()), times) > LARGEST:
        raise OverflowError("the layer's bytes times its multipliers exceed 64 bits")
    return _Enumeration(layer, matrix.astype(np.int64)).run(max_states, stop)


class _Enumeration:
    """Partial policies as columns. Rows: coordinates; time left in each open window; a rank for each live op.

    A rank says from when on an op's output is there: k in the k-th open window (from 1) or earlier, above all
    windows on the critical path, above that never; DEAD once nobody asks any more.
    """

    def __init__(self, layer: Layer, weights: IntArray) -> None:
        self.layer, self.weights = layer, weights
        self.open = layer.open
        self.critical, self.never = len(self.open) + 1, len(self.open) + 2
        self.first_left = 1 + len(weights) + layer.late
        self.first_rank = self.first_left + len(self.open)
        self.live: list[int] = []
        start = [0] * self.first_left + [layer.windows[w].time_us for w in self.open]
        self.states = np.array(start, dtype=np.int64)[:, None]

    def run(self, max_states: int, stop: Callable[[], bool]) -> Policies:
        """Op by op: choose, forget what no later op depends on, keep the nondominated partial policies."""
        levels, made = [], 0
        reachable = [_reachable_sums(self.layer, w, stop) for w in self.open]
        for step, i in enumerate(self.layer.useful):
            parent, choice = self._choose(i)
            made += self.states.shape[1]
            if made > max_states or stop():
                raise TooManyStates
            self._forget(step, [sums[step] for sums in reachable])
            kept = nondominated(self._minimised(), stop)
            self.states = self.states[:, kept]
            levels.append(Level(i, parent[kept], choice[kept]))
        return Policies(self.states[: self.first_left], tuple(levels))

    def _choose(self, i: int) -> tuple[IntArray, IntArray]:
        """Every partial policy with every admissible choice for op i, which becomes the last live op."""
        op = self.layer.ops[i]
        ready = self._ready(op.inputs)
        everyone = np.arange(self.states.shape[1])
        parts = [] if op.needed else [(everyone, ABSENT, self.never, self._change(0, 0, 0, 0, 0))]
        parts.append((everyone, STORED, 1, self._change(0, op.output_bytes, 0, 0, 0)))
        for k, w in enumerate(self.open):
            if self.layer.fits(i, w):
                row = self.first_left + k
                able = np.flatnonzero((ready <= k + 1) & (self.states[row] >= op.time_us))
                forward, working = self.layer.unit(w)
                size, late = working * self.layer.again(i), self.layer.late_us(i, w)
                change = self._change(0, 0, forward * op.output_bytes, size, late)
                change[row] = -op.time_us
                parts.append((able, w, k + 1, change))
        able = np.flatnonzero(ready <= self.critical)
        working = self.layer.unit(self.layer.critical)[1] * self.layer.again(i)
        change = self._change(op.time_us, 0, 0, working, 0)
        parts.append((able, self.layer.critical, self.critical, change))
        self._extend(parts)
        self.live.append(i)
        sizes = [len(who) for who, _, _, _ in parts]
        return np.concatenate([who for who, _, _, _ in parts]), np.repeat([choice for _, choice, _, _ in parts], sizes)

    def _extend(self, parts: list[tuple[IntArray, int, int, IntArray]]) -> None:
        height, width = self.states.shape
        states = np.empty((height + 1, sum(len(who) for who, _, _, _ in parts)), dtype=np.int64)
        at = 0
        for who, _, rank, change in parts:
            place = slice(at, at + len(who))
            np.add(self.states if len(who) == width else self.states[:, who], change[:, None], out=states[:-1, place])
            states[-1, place] = rank
            at += len(who)
        self.states = states

    def _change(self, time_us: int, stored: int, forward: int, working: int, late_us: int) -> IntArray:
        change = np.zeros(len(self.states), dtype=np.int64)
        change[0] = time_us
        change[1 : 1 + len(self.weights)] = self.weights @ np.array([stored, forward, working])
        if self.layer.late:
            change[self.first_left - 1] = late_us
        return change

    def _ready(self, inputs: tuple[int, ...]) -> IntArray:
        """The rank from which on all inputs are there; the layer's input always is."""
        ranks = [self.states[self.first_rank + self.live.index(j)] for j in set(inputs)]
        ready: IntArray = np.max(ranks, axis=0) if ranks else np.zeros(self.states.shape[1], dtype=np.int64)
        return ready

    def _forget(self, step: int, sums: list[IntArray | None]) -> None:
        """Make alike what no op to come can tell apart: time left that no set of ops fills, ranks between windows."""
        to_come = set(self.layer.useful[step + 1 :])
        for k, reachable in enumerate(sums):
            left = self.states[self.first_left + k]
            if reachable is not None:
                left[:] = reachable[np.searchsorted(reachable, left, side="right") - 1]
        asked = [bool(to_come.intersection(self.layer.readers[j])) for j in self.live]
        rows = [self.first_rank + place for place, still in enumerate(asked) if still]
        self.live = [j for j, still in zip(self.live, asked, strict=True) if still]
        self.states = self.states[[*range(self.first_rank), *rows]]
        for place, j in enumerate(self.live):
            self._raise_rank(self.first_rank + place, to_come.intersection(self.layer.readers[j]))

    def _raise_rank(self, row: int, readers: set[int]) -> None:
        """An output that is there in a window where no reader can run may as well be there in the next such window."""
        rank = self.states[row]
        following = np.full(len(rank), self.critical, dtype=np.int64)
        for k in range(len(self.open) - 1, -1, -1):
            fitting = [self.layer.ops[i].time_us for i in readers if self.layer.fits(i, self.open[k])]
            if fitting:
                following = np.where(self.states[self.first_left + k] >= min(fitting), k + 1, following)
            rank[:] = np.where(rank == k + 1, following, rank)

    def _minimised(self) -> IntArray:
        """Rows that are better the smaller they are: time left counts negative."""
        rows = self.states.copy()
        rows[self.first_left : self.first_rank] *= -1
        return rows


def _reachable_sums(layer: Layer, w: int, stop: Callable[[], bool]) -> list[IntArray | None]:
    """For each useful op, the times that ops after it can fill window w with, ascending; None: too many to list."""
    sums: IntArray | None = np.zeros(1, dtype=np.int64)
    found: list[IntArray | None] = []
    for i in reversed(layer.useful):
        if stop():
            raise TooManyStates
        found.append(sums)
        if sums is not None and layer.fits(i, w):
            sums = np.unique(np.concatenate([sums, sums + layer.ops[i].time_us]))
            sums = sums[sums <= layer.windows[w].time_us]
            sums = None if len(sums) > MAX_SUMS else sums
    return found[::-1]
