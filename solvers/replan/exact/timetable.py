"""Times of pipelines by F5, computed once: the same splits are met under many limits."""

from collections import defaultdict

import numpy as np

from solvers.ir.replan import ReplanProblem
from solvers.replan.estimate.memory import most_microbatches
from solvers.replan.estimate.pipeline import rows_us
from solvers.replan.exact.bounds import IntArray


class Timetable:
    """t of a split with 0…n microbatches, remembered for one problem."""

    def __init__(self, problem: ReplanProblem) -> None:
        self._problem = problem
        self._rows: dict[tuple[int, ...], IntArray] = {}
        self._fitting: dict[tuple[int, ...], int] = {}
        self.noted = defaultdict[int, dict[tuple[int, ...], None]](dict)
        """Splits of each depth that were worth noting."""

    def note(self, split: tuple[int, ...]) -> None:
        """Searches shall begin with this split."""
        self.noted[len(split)][split] = None

    def rows_us(self, splits: list[tuple[int, ...]], most: int) -> IntArray:
        """Times [split, 0…most] of splits of one depth."""
        new = [split for split in splits if split not in self._rows or len(self._rows[split]) <= most]
        if new:
            self._rows.update(zip(new, rows_us(self._problem, new, most), strict=True))
        return np.stack([self._rows[split][: most + 1] for split in splits])

    def time_us(self, split: tuple[int, ...], microbatches: int) -> int:
        """The time of one pipeline."""
        return int(self.rows_us([split], microbatches)[0, microbatches])

    def most_fitting(self, split: tuple[int, ...]) -> int:
        """The most microbatches for which memory holds the split: as many as a step has, or fewer than its stages."""
        if split not in self._fitting:
            self._fitting[split] = most_microbatches(self._problem, split)
        return self._fitting[split]
