"""What the last stages of a pipeline do to those before: when each backward comes back, for each forward (proof 4).

A response is a matrix: entry (j, i) is the longest path from the arrival of forward i at a stage to the end of its
backward j. Whatever stands in front, smaller responses never make a pipeline slower.
"""

import numpy as np

from solvers.replan.exact.bounds import IntArray
from solvers.replan.progress import Stop, never

_NEVER = -(2**60)
"""No path; sums of two such still fit 64 bits."""
_CELLS = 2**16
"""Entries of responses that are computed at once: so many, and what they are made from, stay in the cache."""
_SOME = 32
"""So many entries of two responses are compared before all are: most that are not dominated show it there."""


def respond(
    behind: IntArray | None,
    k: int,
    forward: IntArray,
    backward: IntArray,
    m: int,
    hop_us: int,
    stop: Stop = never,
) -> IntArray:
    """Responses [number, j, i] of stage k and all behind it; `behind`: those of stage k − 1, None for the last stage.

    `forward` and `backward` [number] are the times of stage k; m microbatches; `hop_us` each way to the stage behind.
    Unfinished, and of no use, where the search has to stop.
    """
    response = np.zeros((len(forward), m, m), dtype=np.int64)
    portion = max(1, _CELLS // m**2)
    for start in range(0, len(forward), portion):
        some = slice(start, start + portion)
        before = None if behind is None else behind[some]
        _respond(before, k, forward[some], backward[some], hop_us, stop, response[some])
    return response


def _respond(
    behind: IntArray | None,
    k: int,
    forward: IntArray,
    backward: IntArray,
    hop_us: int,
    stop: Stop,
    response: IntArray,
) -> None:
    """Of some: fills `response`."""
    number, m = response.shape[:2]
    free = np.full((number, m), _NEVER, dtype=np.int64)
    ahead = np.full((number, m, m), _NEVER, dtype=np.int64)
    fill = min(k - 1, m)
    for step in range(m + fill):
        if stop():
            break
        if step < m:
            free = np.maximum(free, _arrival(step, m))
            free += forward[:, None]
            ahead[:, step] = free
        batch = step - fill
        if batch < 0:
            continue
        if behind is None:
            returned = ahead[:, batch]
        else:
            sent = min(batch + k - 1, m)
            returned = (behind[:, batch, :sent, None] + ahead[:, :sent]).max(axis=1) + 2 * hop_us
        free = np.maximum(free, returned) + backward[:, None]
        response[:, batch] = free


def _arrival(forward: int, m: int) -> IntArray:
    """Forward i arrives at 0 for i = `forward`; the others say nothing about it."""
    arrival = np.full(m, _NEVER, dtype=np.int64)
    arrival[forward] = 0
    return arrival


def undominated(groups: IntArray, responses: IntArray, stop: Stop = never) -> IntArray:
    """Which responses no other of the same group is as small as everywhere; of equal ones the first.

    Some of them only where the search has to stop.
    """
    flat = responses.reshape(len(responses), -1)
    weight = np.maximum(flat, 0).sum(axis=1)
    few = np.ascontiguousarray(flat[:, np.linspace(0, flat.shape[1] - 1, _SOME).astype(np.intp)])
    kept: list[int] = []
    for group in np.unique(groups):
        alive = np.flatnonzero(groups == group)
        alive = alive[np.argsort(weight[alive], kind="stable")]
        while len(alive) and not stop():
            kept.append(int(alive[0]))
            best, rest = alive[0], alive[1:]
            less = (few[rest] < few[best]).any(axis=1)
            doubtful = np.flatnonzero(~less)
            less[doubtful] = (flat[rest[doubtful]] < flat[best]).any(axis=1)
            alive = rest[less]
    return np.sort(np.array(kept, dtype=np.int64))
