"""Which of many integer vectors are dominated by none: bit sets over ranks, a hundred million pairs in milliseconds."""

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
WordArray = npt.NDArray[np.uint64]

FEW = 64
"""So many vectors are compared pair by pair."""
FIRST_CHUNK, CHUNK = 64, 1024
"""Vectors that thin out all others at a time; the first, best ones leave little to do for the next ones."""
SMALL = 1024
"""Values up to so much above the least are counted, not sorted."""
BITS = np.left_shift(np.uint64(1), np.arange(64, dtype=np.uint64))
EARLIER = np.packbits(np.tri(CHUNK, CHUNK, -1, dtype=np.bool_), axis=1, bitorder="little").view(np.uint64)
"""Row k: the bit set of the positions before k."""


def nondominated(vectors: IntArray) -> IntArray:
    """The columns (one vector each) that no other column is ≤ in every row, ascending; of equal ones the first.

    A dominating vector has a smaller sum of ranks, so in that order only earlier vectors need to be asked: the first
    ones that are left are thinned among themselves and kept, what they dominate goes, and so on.
    """
    count = vectors.shape[1]
    if count <= FEW:
        return _pairwise(vectors)
    rows = [_ranks(row) for row in vectors if (row != row[0]).any()]
    if not rows:
        return np.zeros(1, dtype=np.int64)
    left = np.argsort(np.sum(rows, axis=0), kind="stable")
    rows = [row.take(left) for row in rows]
    kept, chunk = [], FIRST_CHUNK
    while len(left):
        head = _thinned([row[:chunk] for row in rows])
        kept.append(left[head])
        leaders = [row[head] for row in rows]
        rows, left = [row[chunk:] for row in rows], left[chunk:]
        if len(left):
            free = np.flatnonzero(_empty(_dominators(leaders, rows)))
            rows, left = [row.take(free) for row in rows], left.take(free)
        chunk = CHUNK
    return np.sort(np.concatenate(kept))


def _pairwise(vectors: IntArray) -> IntArray:
    below: npt.NDArray[np.bool_] = np.all(vectors[:, :, None] <= vectors[:, None, :], axis=0)
    worse = below & (~below.T | np.tri(vectors.shape[1], dtype=np.bool_).T)
    np.fill_diagonal(worse, False)
    return np.flatnonzero(~worse.any(axis=0))


def _thinned(rows: list[IntArray]) -> IntArray:
    """The positions that no earlier position dominates."""
    found = _dominators(rows, rows)
    return np.flatnonzero(_empty(found & EARLIER[: len(found), : found.shape[1]]))


def _dominators(leaders: list[IntArray], rows: list[IntArray]) -> WordArray:
    """For each vector of `rows` the bit set of leaders that are ≤ it everywhere (itself included)."""
    found: WordArray | None = None
    for leader, row in zip(leaders, rows, strict=True):
        below = np.bincount(leader, minlength=int(row.max()) + 1).cumsum().take(row)
        bits = _prefix_sets(leader.argsort()).take(below, axis=0)
        found = bits if found is None else np.bitwise_and(found, bits, out=found)
    assert found is not None
    return found


def _prefix_sets(order: IntArray) -> WordArray:
    """Row k holds the bit set of the first k members of the order."""
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
    """Small numbers in the order of the values: the values themselves, or 0 for the least, 1 for the next, …"""
    above: IntArray = row - row.min()
    if above.max() <= SMALL:
        return above
    order = row.argsort()
    ordered = row.take(order)
    ranks = np.empty(len(row), dtype=np.int64)
    ranks[order[0]] = 0
    ranks[order[1:]] = (ordered[1:] != ordered[:-1]).cumsum()
    return ranks
