"""Which of many integer vectors are dominated by none: bit sets over dense ranks, some million pairs a millisecond."""

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
WordArray = npt.NDArray[np.uint64]

CHUNK = 512
"""Vectors compared with all others at a time: their bits fill eight words, so that tables stay in the cache."""
BITS = np.left_shift(np.uint64(1), np.arange(64, dtype=np.uint64))


def nondominated(vectors: IntArray) -> IntArray:
    """The columns (one vector each) that no other column is ≤ in every row, ascending; of equal ones the first.

    A dominating vector has a smaller sum of ranks, so in that order only earlier vectors need to be asked: the first
    `CHUNK` that are left are thinned among themselves and kept, what they dominate goes, and so on.
    """
    count = vectors.shape[1]
    ranks = [_dense_ranks(row) for row in vectors if count and (row != row[0]).any()]
    if not ranks:
        return np.arange(min(count, 1), dtype=np.int64)
    left = np.argsort(np.sum(ranks, axis=0), kind="stable")
    rows = [rank[left] for rank in ranks]
    kept = []
    while len(left):
        head = _thinned([row[:CHUNK] for row in rows])
        kept.append(left[head])
        leaders = [row[head] for row in rows]
        rows, left = [row[CHUNK:] for row in rows], left[CHUNK:]
        if len(left):
            free = np.flatnonzero(~_dominators(leaders, rows).any(axis=1))
            rows, left = [row[free] for row in rows], left[free]
    return np.sort(np.concatenate(kept))


def _thinned(rows: list[IntArray]) -> IntArray:
    """The positions that no earlier position dominates."""
    count = len(rows[0])
    earlier = np.packbits(np.tri(count, 64 * -(-count // 64), -1, dtype=np.bool_), axis=1, bitorder="little")
    found = _dominators(rows, rows) & earlier.view(np.uint64)
    return np.flatnonzero(~found.any(axis=1))


def _dominators(leaders: list[IntArray], rows: list[IntArray]) -> WordArray:
    """For each vector of `rows` the bit set of leaders that are ≤ it everywhere (itself included)."""
    found: WordArray | None = None
    for leader, row in zip(leaders, rows, strict=True):
        below = np.cumsum(np.bincount(leader, minlength=int(row.max()) + 1))[row]
        bits = _prefix_sets(np.argsort(leader, kind="stable"))[below]
        found = bits if found is None else np.bitwise_and(found, bits, out=found)
    assert found is not None
    return found


def _prefix_sets(order: IntArray) -> WordArray:
    """Row k holds the bit set of the first k members of the order."""
    count = len(order)
    sets = np.zeros((count + 1, -(-count // 64)), dtype=np.uint64)
    sets[np.arange(1, count + 1), order // 64] = BITS[order % 64]
    np.bitwise_or.accumulate(sets, axis=0, out=sets)
    return sets


def _dense_ranks(row: IntArray) -> IntArray:
    """0 for the least value, 1 for the next, …; equal values share a rank."""
    order = np.argsort(row)
    ordered = row[order]
    ranks = np.empty(len(row), dtype=np.int64)
    ranks[order] = np.concatenate([[0], np.cumsum(ordered[1:] != ordered[:-1])])
    return ranks
