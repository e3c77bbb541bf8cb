"""Times of the last stages of pipelines alone, by F5, computed once: the same ones are met under many limits."""

from dataclasses import dataclass, field

import numpy as np

from solvers.ir.replan import ReplanProblem
from solvers.replan.estimate.pipeline import batch_us, every_batch_us
from solvers.replan.estimate.rounds import IntArray
from solvers.replan.even_placements import PORTION
from solvers.replan.progress import Stop

_CELLS = 2**22
"""Times that are remembered at most; then everything is forgotten."""
_FURTHER = 8
"""What is computed is computed for this part more microbatches, as searches ask for a few more or fewer."""


@dataclass
class _Known:
    """Times [number, 0…most] of stages of one number, and which row is whose."""

    times_us: IntArray
    row_of: dict[bytes, int] = field(default_factory=dict)


class Suffixes:
    """Remembers for one problem what the last stages take; `stop` leaves times of no use, the larger ones possible."""

    def __init__(self, problem: ReplanProblem) -> None:
        self._problem = problem
        self._known: dict[tuple[int, bool], _Known] = {}
        self._cells = 0

    def times_us(self, splits: IntArray, microbatches: int, *, whole: bool, stop: Stop) -> IntArray:
        """Times [number] of pipelines of `splits` [number, stage]; `whole`: their first stage has the model's begin."""
        most = microbatches + microbatches // _FURTHER
        if 2 * len(splits) * (most + 1) > _CELLS:
            return self.computed(splits, microbatches, whole=whole, stop=stop)
        keys = [split.tobytes() for split in splits]
        known = self._known.get((splits.shape[1], whole))
        if known is None or known.times_us.shape[1] <= microbatches:
            known = _Known(np.zeros((0, most + 1), dtype=np.int64))
        new = [number for number, key in enumerate(keys) if key not in known.row_of]
        if new:
            known = self._learned(known, splits[new], [keys[number] for number in new], whole)
        return known.times_us[[known.row_of[key] for key in keys], microbatches]

    def _learned(self, known: _Known, splits: IntArray, keys: list[bytes], whole: bool) -> _Known:
        most = known.times_us.shape[1] - 1
        times = every_batch_us(*self._stages(splits, whole), most, self._problem.p2p_us)
        self._cells += times.size
        if self._cells > _CELLS:
            self._known, self._cells = {}, times.size
        rows = {key: len(known.times_us) + number for number, key in enumerate(keys)}
        learned = _Known(np.concatenate([known.times_us, times]), known.row_of | rows)
        self._known[splits.shape[1], whole] = learned
        return learned

    def computed(self, splits: IntArray, microbatches: int, *, whole: bool, stop: Stop) -> IntArray:
        """The same, not remembered."""
        forward, backward = self._stages(splits, whole)
        times = np.full(len(splits), microbatches, dtype=np.int64)
        portion = max(1, PORTION // (splits.shape[1] * min(microbatches, 2 * splits.shape[1])))
        for start in range(0, 0 if stop() else len(splits), portion):
            some = slice(start, start + portion)
            times[some] = batch_us(forward[some], backward[some], times[some], self._problem.p2p_us)
            if stop():
                break
        return times

    def _stages(self, splits: IntArray, whole: bool) -> tuple[IntArray, IntArray]:
        """Forward and backward of each stage."""
        problem = self._problem
        forward, backward = splits * problem.forward_us, splits * problem.backward_us
        for table, first, last in zip((forward, backward), problem.first_extra_us, problem.last_extra_us, strict=True):
            table[:, -1] += last
            table[:, 0] += first if whole else 0
        return forward, backward
