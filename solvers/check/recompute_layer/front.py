"""The policies of one layer that any plan may need (5.1, 5.2), op by op, worse partial policies left out.

A policy says for each op: stored, recomputed in a window or on the critical path, or absent. For one number k of
microbatches in flight it has c µs on the critical path, g = k·stored + forward bytes, a working set of w bytes, and e
µs in backward windows. One with no more c, g, g + w and e than another replaces it: n layers of it change Σ n·g + max w
by n·Δg − Δg ≤ 0 at most.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solvers.ir.recompute import RecomputeLayerProblem

Ints = npt.NDArray[np.int64]
MOST_PARTIAL = 60_000
"""Partial policies beyond which the layer is given up."""
MOST_COMPARISONS = 200_000_000
"""Pairs of partial policies compared, of all ops together, beyond which the layer is given up."""
BLOCK = 256
"""Rows that thin out all others at a time."""
LONGEST = 1_000_000
"""Windows of more µs are taken as they are."""
LARGEST = 2**53
"""Bytes and microseconds of all layers together beyond which nothing is computed: sums must fit 64 bits."""


@dataclass(frozen=True)
class Policies:
    """One entry a policy."""

    time_us: Ints
    share_bytes: Ints
    working_bytes: Ints
    late_us: Ints


def policies_of(problem: RecomputeLayerProblem) -> Policies | None:
    """All that a plan may need; None where there are too many, or the numbers are too large."""
    copies = problem.layers * (problem.inflight_microbatches + 3)
    if copies * sum(op.output_bytes + op.time_us for op in problem.ops) > LARGEST:
        return None
    found = _Enumeration(problem).run()
    if found is None:
        return None
    time, share, both, late = found[:4]
    return Policies(time, share, both - share, late)


class _Enumeration:
    """Rows of partial policies, less is better everywhere: c, g, g + w, e, −(time left) a window, and a rank an op.

    A rank is the first place where an op's output is there: −1 stored, then the windows, the critical path, absent.
    """

    def __init__(self, problem: RecomputeLayerProblem) -> None:
        self.problem, self.critical = problem, len(problem.windows)
        self.again = problem.again_bytes or tuple(op.output_bytes for op in problem.ops)
        self.wanted = {i for i, op in enumerate(problem.ops) if op.needed}
        for i in reversed(range(len(problem.ops))):
            if i in self.wanted:
                self.wanted |= set(problem.ops[i].inputs)
        readers = [(j, i) for i, op in enumerate(problem.ops) if i in self.wanted for j in op.inputs]
        self.last = {j: i for j, i in sorted(readers, key=lambda pair: pair[1])}
        self.open: list[int] = []
        self.comparisons = 0

    def run(self) -> Ints | None:
        """The rows of all whole policies."""
        first = [0, 0, 0, 0, *(-window.time_us for window in self.problem.windows)]
        rows: Ints = np.array([first], dtype=np.int64).T
        for i in sorted(self.wanted):
            rows = self._with(i, rows)
            if rows.shape[1] > MOST_PARTIAL:
                return None
            thinned = self._thinned(self._alike(i, rows))
            if thinned is None:
                return None
            rows = thinned
        return rows

    def _alike(self, i: int, rows: Ints) -> Ints:
        """Behind op i, what no op to come can tell apart is made alike.

        Time left in a window counts as the largest sum of times of ops to come within it; a rank as the first place
        from there on in which a reader to come may stand.
        """
        coming = [k for k in sorted(self.wanted) if k > i]
        for place, window in enumerate(self.problem.windows):
            times = [self.problem.ops[k].time_us for k in coming if self._may_stand(k, place)]
            if window.time_us <= LONGEST:
                rows[4 + place] = -_largest_sums(times, window.time_us)[-rows[4 + place]]
        for number, j in enumerate(self.open):
            readers = [k for k in coming if j in self.problem.ops[k].inputs]
            table = np.arange(-1, self.critical + 2)
            for place in reversed(range(self.critical)):
                if not any(self._may_stand(k, place) for k in readers):
                    table[place + 1] = table[place + 2]
            table[0] = -1 if table[1] == 0 else table[1]
            rows[4 + self.critical + number] = table[rows[4 + self.critical + number] + 1]
        return rows

    def _may_stand(self, k: int, place: int) -> bool:
        """Whether op k may be recomputed in that window."""
        window, op = self.problem.windows[place], self.problem.ops[k]
        closed = window.phase == "forward" and self.problem.last_stage
        return not (op.comm or closed) and op.time_us <= window.time_us

    def _with(self, i: int, rows: Ints) -> Ints:
        op, ranks = self.problem.ops[i], 4 + self.critical
        least = np.full(rows.shape[1], -1, dtype=np.int64)
        for j in op.inputs:
            least = np.maximum(least, rows[ranks + self.open.index(j)])
        made = [self._stored(i, rows)]
        made += [self._recomputed(i, rows[:, least <= place], place) for place in range(self.critical + 1)]
        if not op.needed:
            made.append(np.vstack([rows, np.full(rows.shape[1], self.critical + 1)]))
        after = np.hstack(made)
        names = [*self.open, i]
        stay = [j for j in names if self.last.get(j, -1) > i]
        self.open = stay
        return after[[*range(ranks), *(ranks + names.index(j) for j in stay)]]

    def _stored(self, i: int, rows: Ints) -> Ints:
        after = np.vstack([rows, np.full(rows.shape[1], -1)])
        after[1:3] += self.problem.inflight_microbatches * self.problem.ops[i].output_bytes
        return after

    def _recomputed(self, i: int, rows: Ints, place: int) -> Ints:
        """Those that recompute op i there: in time, no communication in a window, none in a closed one."""
        problem, op = self.problem, self.problem.ops[i]
        after = np.vstack([rows, np.full(rows.shape[1], place)])
        if place == self.critical:
            after[0] += op.time_us
            after[2] += self.again[i]
            return after
        window = problem.windows[place]
        if op.comm or (window.phase == "forward" and problem.last_stage):
            return after[:, :0]
        after[4 + place] += op.time_us
        if window.phase == "forward":
            after[1:3] += op.output_bytes
        else:
            after[2] += 2 * self.again[i]
        if window.phase == "backward" and problem.last_windowless:
            after[3] += op.time_us
        return after[:, after[4 + place] <= 0]

    def _thinned(self, rows: Ints) -> Ints | None:
        """The columns that no other is ≤ in every row; of equal ones the first; None after too many comparisons."""
        left = np.unique(rows, axis=1)
        left = left[:, np.argsort(left.astype(np.float64).sum(axis=0), kind="stable")]
        kept = []
        while left.shape[1]:
            head, left = left[:, :BLOCK], left[:, BLOCK:]
            self.comparisons += head.shape[1] * (head.shape[1] + left.shape[1])
            if self.comparisons > MOST_COMPARISONS:
                return None
            below = np.all(head[:, :, None] <= head[:, None, :], axis=0)
            np.fill_diagonal(below, False)
            head = head[:, ~below.any(axis=0)]
            kept.append(head)
            worse = np.ones((head.shape[1], left.shape[1]), dtype=np.bool_)
            for leader, row in zip(head, left, strict=True):
                worse &= leader[:, None] <= row
            left = left[:, ~worse.any(axis=0)]
        return np.hstack(kept)


def _largest_sums(times: list[int], most: int) -> Ints:
    """By 0…most, the largest sum of some of the times up to it."""
    reached = 1
    for time in times:
        reached |= reached << time & ((2 << most) - 1)
    bits = np.frombuffer(reached.to_bytes(most // 8 + 1, "little"), dtype=np.uint8)
    sums: Ints = np.where(np.unpackbits(bits, bitorder="little")[: most + 1], np.arange(most + 1), 0)
    return np.maximum.accumulate(sums)
