"""What the last stages of a pipeline do to those before: when each backward comes back, for each forward (proof 4).

A response is a matrix: entry (j, i) is the longest path from the arrival of forward i at a stage to the end of its
backward j. Whatever stands in front, smaller responses never make a pipeline slower.
"""

import numpy as np

from solvers.replan.exact.bounds import IntArray
from solvers.replan.progress import Stop, never

_NEVER = -(2**60)
"""No path; sums of two such still fit 64 bits."""


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
    number = len(forward)
    free = np.full((number, m), _NEVER, dtype=np.int64)
    ahead = np.full((number, m, m), _NEVER, dtype=np.int64)
    response = np.zeros((number, m, m), dtype=np.int64)
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
    return response


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
    kept: list[int] = []
    for group in np.unique(groups):
        alive = np.flatnonzero(groups == group)
        alive = alive[np.argsort(weight[alive], kind="stable")]
        while len(alive) and not stop():
            kept.append(int(alive[0]))
            rest = alive[1:]
            alive = rest[(flat[rest] < flat[alive[0]]).any(axis=1)]
    return np.sort(np.array(kept, dtype=np.int64))
