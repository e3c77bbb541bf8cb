"""The fluid relaxation with whole tensors where memory is short: a tighter bound for mid-sized instances (model D)."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from solvers.swap.evaluate import Instance
from solvers.swap.relaxation import Fluid, FluidBuilder, Integers

ENTRIES = 2500
"""The most (tensor, op) pairs that become integer columns: a larger model is not solved in the time available."""


def discrete(given: Instance, horizon: int, watched: Sequence[int]) -> Fluid | None:
    """Model D on the ops of `watched`, most important first; None where not even one op can be watched."""
    builder = _DiscreteBuilder(given, horizon)
    pairs = 0
    chosen = []
    for op in watched:
        pairs += len(builder.spanning(op))
        if pairs > ENTRIES:
            break
        chosen.append(op)
    if not chosen:
        return None
    builder.watch(sorted(chosen))
    return builder.build()


class _DiscreteBuilder(FluidBuilder):
    """Model F with a binary selection, and at each watched op a binary for every tensor: has it left completely."""

    def __init__(self, given: Instance, horizon: int) -> None:
        super().__init__(given, horizon, integral=True)
        self.first = np.array(given.first, dtype=np.int64)
        self.last = np.array(given.last, dtype=np.int64)
        self.out_time = np.array(given.out_time) / self.unit_time

    def spanning(self, op: int) -> Integers:
        """The tensors that may be absent during an op."""
        return np.flatnonzero((self.first < op) & (op < self.last))

    def watch(self, ops: Sequence[int]) -> None:
        """Add the rows of (D1)-(D3) for these ops."""
        for op in ops:
            tensors = self.spanning(op)
            if len(tensors):
                left = self.builder.binaries(len(tensors), name=f"left.{op}")
                self._whole_memory(op, tensors, left)
                self._whole_lane(op, tensors, left)
                self._prefix(op, tensors, left)

    def _whole_memory(self, op: int, tensors: Integers, left: Integers) -> None:
        """(D1) Whole tensors that have left cover the need and the bytes issued to return but not yet due."""
        place = int(np.searchsorted(self.points, op))
        columns = np.concatenate([left, [self.issued[place], self.due[place]]])
        values = np.concatenate([self.size[tensors], [-1.0, 1.0]])
        self.builder.row(columns, values, lower=float(self.need[place]), name="whole_memory")

    def _whole_lane(self, op: int, tensors: Integers, left: Integers) -> None:
        """(D2) What left by the op's ready time, and was free only after op q, took its lane time since then."""
        place = int(np.searchsorted(self.points, op))
        for release in np.unique(self.first[tensors]):
            later = self.first[tensors] >= release
            before = int(np.searchsorted(self.points, release))
            columns = np.concatenate([left[later], [self.ready[place], self.start[before]]])
            values = np.concatenate([self.out_time[tensors[later]], [-1.0, 1.0]])
            self.builder.row(columns, values, upper=-float(self.time[before]), name="whole_lane")

    def _prefix(self, op: int, tensors: Integers, left: Integers) -> None:
        """(D3) The out lane is FIFO: a tensor has left only if all swapped ones that were free before it have."""
        groups = np.unique(self.first[tensors])
        passed = self.builder.columns(len(groups), 0, 1, name=f"passed.{op}")
        group = np.searchsorted(groups, self.first[tensors])
        for column, tensor, number in zip(left, tensors, group, strict=True):
            self.builder.row([column, self.z[tensor]], [1.0, -1.0], upper=0.0, name="left_swapped")
            self.builder.row([column, self.z[tensor], passed[number]], [1.0, -1.0, -1.0], lower=-1.0, name="passed")
            if number:
                self.builder.row([column, passed[number - 1]], [1.0, -1.0], upper=0.0, name="fifo")
        for earlier, later in pairwise(passed):
            self.builder.row([later, earlier], [1.0, -1.0], upper=0.0, name="fifo_groups")
