"""Which of many integer vectors are dominated by none: bit sets over ranks, a hundred million pairs in milliseconds."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
WordArray = npt.NDArray[np.uint64]

FEW = 64
"""The most vectors that are compared pair by pair."""
FIRST_CHUNK, CHUNK = 128, 1024
"""Vectors that thin out all others at a time; the first, best ones leave little to do for the next ones."""
COUNTED = 4096
"""Range of values up to which ranks are found by counting; beyond, by sorting."""
CELLS = 128
"""The most combinations of values for which rows are looked up together."""
MANY = 1024
"""Rows with more values than this are looked up by position among the leaders."""
BITS = np.left_shift(np.uint64(1), np.arange(64, dtype=np.uint64))
WORD, BIT = np.arange(CHUNK) >> 6, BITS[np.arange(CHUNK) & 63]
EARLIER = np.packbits(np.tri(CHUNK, CHUNK, -1, dtype=np.bool_), axis=1, bitorder="little").view(np.uint64)
"""Row k: the bit set of the positions before k."""


class TooManyStates(Exception):
    """There are more partial policies than asked for, or they took longer."""


@dataclass(frozen=True)
class _Axis:
    """One or more rows of ranks as one row of cell numbers of a table with that shape."""

    cells: IntArray
    shape: tuple[int, ...]

    def take(self, places: IntArray) -> "_Axis":
        """These vectors of the axis."""
        return _Axis(self.cells.take(places), self.shape)

    def part(self, places: slice) -> "_Axis":
        """A run of its vectors."""
        return _Axis(self.cells[places], self.shape)

    def sets(self, leaders: IntArray) -> WordArray:
        """For each vector the bit set of the leaders, given by their cells, that are ≤ it here."""
        if self.shape[0] <= MANY:
            return _cell_sets(leaders, self.shape).take(self.cells, axis=0)
        below = np.bincount(leaders, minlength=self.shape[0]).cumsum().take(self.cells)
        return _prefix_sets(leaders.argsort()).take(below, axis=0)


def nondominated(vectors: IntArray, stop: Callable[[], bool] = lambda: False) -> IntArray:
    """The columns (one vector each) that no other column is ≤ in every row, ascending; of equal ones the first.

    A dominating vector has a smaller sum of ranks, so in that order only earlier vectors need to be asked: the first
    ones that are left are thinned among themselves and kept, what they dominate goes, and so on. Before each of these
    rounds `stop` is asked, as one call may take many seconds: `TooManyStates` where it says so.
    """
    if vectors.shape[1] <= FEW:
        return _pairwise(vectors)
    ranks = [_ranks(row) for row in vectors if (row != row[0]).any()]
    if not ranks:
        return np.zeros(1, dtype=np.int64)
    left = np.argsort(np.sum(ranks, axis=0), kind="stable")
    axes = [axis.take(left) for axis in _axes(ranks)]
    kept, chunk = [], FIRST_CHUNK
    while len(left):
        if stop():
            raise TooManyStates
        first = [axis.part(slice(chunk)) for axis in axes]
        head = _thinned(first)
        kept.append(left[head])
        leaders = [axis.take(head) for axis in first]
        axes, left = [axis.part(slice(chunk, None)) for axis in axes], left[chunk:]
        if len(left):
            free = np.flatnonzero(_empty(_dominators(leaders, axes)))
            axes, left = [axis.take(free) for axis in axes], left.take(free)
        chunk = CHUNK
    return np.sort(np.concatenate(kept))


def _axes(ranks: list[IntArray]) -> list[_Axis]:
    """Rows of few ranks together, as many as their combinations allow; rows of many ranks alone."""
    axes: list[_Axis] = []
    for row in sorted(ranks, key=lambda row: int(row.max())):
        count = int(row.max()) + 1
        if axes and prod(axes[-1].shape) * count <= CELLS:
            axes[-1] = _Axis(axes[-1].cells * count + row, (*axes[-1].shape, count))
        else:
            axes.append(_Axis(row, (count,)))
    return axes


def _pairwise(vectors: IntArray) -> IntArray:
    below: npt.NDArray[np.bool_] = np.all(vectors[:, :, None] <= vectors[:, None, :], axis=0)
    worse = below & (~below.T | np.tri(vectors.shape[1], dtype=np.bool_).T)
    np.fill_diagonal(worse, False)
    return np.flatnonzero(~worse.any(axis=0))


def _thinned(axes: list[_Axis]) -> IntArray:
    """The positions that no earlier position dominates."""
    found = _dominators(axes, axes)
    return np.flatnonzero(_empty(found & EARLIER[: len(found), : found.shape[1]]))


def _dominators(leaders: list[_Axis], axes: list[_Axis]) -> WordArray:
    """For each vector of `axes` the bit set of leaders that are ≤ it everywhere (itself included)."""
    found: WordArray | None = None
    for leader, axis in zip(leaders, axes, strict=True):
        bits = axis.sets(leader.cells)
        found = bits if found is None else np.bitwise_and(found, bits, out=found)
    assert found is not None
    return found


def _cell_sets(cells: IntArray, shape: tuple[int, ...]) -> WordArray:
    """Row of each cell: the bit set of the leaders in cells that are ≤ it along every side of the shape."""
    count = len(cells)
    sets = np.zeros((prod(shape), -(-count // 64)), dtype=np.uint64)
    np.bitwise_or.at(sets, (cells, WORD[:count]), BIT[:count])
    table = sets.reshape(*shape, -1)
    for side in range(len(shape)):
        np.bitwise_or.accumulate(table, axis=side, out=table)
    return sets


def _prefix_sets(order: IntArray) -> WordArray:
    """Row k: the bit set of the first k leaders of the order."""
    count = len(order)
    sets = np.zeros((count + 1, -(-count // 64)), dtype=np.uint64)
    sets[np.arange(1, count + 1), order >> 6] = BITS.take(order & 63)
    return np.bitwise_or.accumulate(sets, axis=0, out=sets)


def _empty(sets: WordArray) -> npt.NDArray[np.bool_]:
    """Which rows are empty sets; column by column, which is faster than along short rows."""
    union = sets[:, 0].copy()
    for word in sets.T[1:]:
        union |= word
    empty: npt.NDArray[np.bool_] = union == 0
    return empty


def _ranks(row: IntArray) -> IntArray:
    """0 for the least value, 1 for the next, …; equal values share a rank."""
    above: IntArray = row - row.min()
    if above.max() <= COUNTED:
        counted: IntArray = (np.bincount(above) > 0).cumsum().take(above)
        return counted - 1
    order = row.argsort()
    ordered = row.take(order)
    ranks = np.empty(len(row), dtype=np.int64)
    ranks[order[0]] = 0
    ranks[order[1:]] = (ordered[1:] != ordered[:-1]).cumsum()
    return ranks
