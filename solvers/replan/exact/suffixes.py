"""Times of the last stages of pipelines alone, by F5."""

import numpy as np

from solvers.ir.replan import ReplanProblem
from solvers.native import extension
from solvers.replan.estimate.pipeline import batch_us
from solvers.replan.estimate.rounds import IntArray
from solvers.replan.even_placements import PORTION
from solvers.replan.progress import Stop

NATIVE = extension("solvers.replan.exact._filling")
"""Goes through every pass of several pipelines at once."""
_PASSES = 2**14
"""Stages times microbatches up to which it does: of more, rounds that repeat are not computed."""


class Suffixes:
    """What the last stages of one problem's pipelines take."""

    def __init__(self, problem: ReplanProblem) -> None:
        self._problem = problem

    def times_us(self, splits: IntArray, microbatches: int, *, whole: bool, stop: Stop) -> IntArray:
        """Times [number] of pipelines of `splits` [number, stage]; `whole`: their first stage has the model's begin.

        `stop` leaves times of no use, the larger ones possible.
        """
        forward, backward = self._stages(splits, whole)
        native = NATIVE is not None and splits.shape[1] * microbatches <= _PASSES
        times = np.full(len(splits), microbatches, dtype=np.int64)
        portion = max(1, PORTION // (splits.shape[1] * min(microbatches, 2 * splits.shape[1])))
        for start in range(0, 0 if stop() else len(splits), portion):
            some = slice(start, start + portion)
            if native and NATIVE is not None:
                times[some] = NATIVE.pipelines_us(forward[some], backward[some], microbatches, self._problem.p2p_us)
            else:
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
