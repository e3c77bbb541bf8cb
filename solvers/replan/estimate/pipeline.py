"""The time of a 1F1B pipeline by the exact recurrence F5, for many pipelines and numbers of microbatches at once."""

from collections.abc import Sequence

import numpy as np

from solvers.ir.replan import ReplanProblem
from solvers.replan.estimate.rounds import IntArray, Pipelines

CELLS = 2**22
"""Results computed at once: more are computed in portions, for the sake of memory."""


def stage_times_us(problem: ReplanProblem, layers: Sequence[int]) -> tuple[IntArray, IntArray]:
    """Forward and backward of one microbatch on each stage in µs, the first's and the last's extras included."""
    forward, backward = stage_tables_us(problem, [layers])
    return forward[0], backward[0]


def stage_tables_us(problem: ReplanProblem, splits: Sequence[Sequence[int]]) -> tuple[IntArray, IntArray]:
    """`stage_times_us` of splits of equal depth, [split, stage]."""
    counts = np.asarray(splits, dtype=np.int64)
    tables = counts * problem.forward_us, counts * problem.backward_us
    for table, first, last in zip(tables, problem.first_extra_us, problem.last_extra_us, strict=True):
        table[:, 0] += first
        table[:, -1] += last
    return tables


def pipeline_us(problem: ReplanProblem, layers: Sequence[int], microbatches: int) -> int:
    """T_pipe of one pipeline in µs, by F5 [R] exactly, whatever the number of microbatches (README)."""
    forward, backward = stage_tables_us(problem, [layers])
    return int(batch_us(forward, backward, np.array([microbatches]), problem.p2p_us)[0])


def row_us(problem: ReplanProblem, layers: Sequence[int], most: int) -> IntArray:
    """T_pipe for 0…most microbatches in µs, [most + 1]; costs as much as the last entry alone."""
    row: IntArray = rows_us(problem, [layers], most)[0]
    return row


def rows_us(problem: ReplanProblem, splits: Sequence[Sequence[int]], most: int) -> IntArray:
    """`row_us` of splits of equal depth, [split, most + 1]."""
    return every_batch_us(*stage_tables_us(problem, splits), most, problem.p2p_us)


def batch_us(forward: IntArray, backward: IntArray, microbatches: IntArray, p2p_us: int) -> IntArray:
    """T_pipe of K pipelines of equal depth P in µs, [K]; stage times [K, P] and microbatches [K], each its own.

    The results must be below 2⁶³, as they are within the bounds of a `ReplanProblem`.
    """
    counts = np.asarray(microbatches, dtype=np.int64)[None, :]
    times: IntArray = _times_us(forward, backward, counts, p2p_us)[0]
    return times


def every_batch_us(forward: IntArray, backward: IntArray, most: int, p2p_us: int) -> IntArray:
    """T_pipe of K pipelines of equal depth for 0…most microbatches in µs, [K, most + 1]."""
    return _times_us(forward, backward, np.arange(most + 1, dtype=np.int64)[:, None], p2p_us).T


def _times_us(forward: IntArray, backward: IntArray, counts: IntArray, p2p_us: int) -> IntArray:
    """T at `counts` [J, K or 1] for stage times [K, P], portion by portion: [J, K]."""
    pipelines, depth = forward.shape
    width = max(1, CELLS // max(counts.shape[0], 2 * depth + 4, depth * depth))
    portions = []
    for start in range(0, pipelines, width):
        some = slice(start, start + width)
        lanes = np.ascontiguousarray(forward[some].T), np.ascontiguousarray(backward[some].T)
        own = counts if counts.shape[1] == 1 else counts[:, some]
        portions.append(_settled_us(Pipelines(*lanes, p2p_us), own, 2 * depth + 4))
    return np.concatenate(portions, axis=1)


def _settled_us(pipelines: Pipelines, counts: IntArray, look: int) -> IntArray:
    """T at `counts`: by the recurrence up to `look`, then by a proved period; those without one go on twice as far."""
    furthest = counts.max(axis=0)
    rounds = pipelines.rounds(min(int(furthest.max()), look))
    times = rounds.at(counts)
    rest = np.flatnonzero(~rounds.periodic & (furthest > look))
    if not len(rest):
        return times
    own = counts if counts.shape[1] == 1 else counts[:, rest]
    times[:, rest] = _settled_us(pipelines.chosen(rest), own, 2 * look)
    return times
