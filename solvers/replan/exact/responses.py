"""What the last stages of a pipeline do to those before: when each backward comes back, for each forward (proof 4).

A response is a matrix: entry (j, i) is the longest path from the arrival of forward i at a stage to the end of its
backward j. Whatever stands in front, smaller responses never make a pipeline slower.
"""

import numpy as np
import numpy.typing as npt

from solvers.replan.exact.bounds import FILLING, IntArray
from solvers.replan.progress import Stop, never

_NEVER = {np.dtype(np.int64): -(2**60), np.dtype(np.int32): -(2**29)}
"""No path; sums of two such still fit."""
_NARROW = 2**29
"""Responses below this fit 32 bits, of which a processor compares twice as many at once."""
Responses = npt.NDArray[np.int64] | npt.NDArray[np.int32]
_CELLS = 2**18
"""Entries of responses that are computed at once: so many, and what they are made from, stay in the cache."""
_TOGETHER = 12
"""Forwards looked at together: of later ones none comes back sooner than it arrives."""
_SOME = 64
"""So many entries of two responses are compared before all are: most that are not dominated show it there."""


def narrowest(most_us: int) -> type[np.int32] | type[np.int64]:
    """The type of stage times and responses where no response is above `most_us`."""
    return np.int32 if most_us < _NARROW else np.int64


def respond(
    behind: Responses | None,
    k: int,
    forward: Responses,
    backward: Responses,
    m: int,
    hop_us: int,
    stop: Stop = never,
) -> Responses:
    """Responses [number, j, i] of stage k and all behind it; `behind`: those of stage k − 1, None for the last stage.

    `forward` and `backward` [number] are the times of stage k; m microbatches; `hop_us` each way to the stage behind.
    They are of the type that `narrowest` says for all stages. Unfinished, and of no use, where the search has to stop.
    """
    response: Responses = np.zeros((len(forward), m, m), dtype=forward.dtype)
    portion = max(1, _CELLS // m**2)
    for start in range(0, len(forward), portion):
        some = slice(start, start + portion)
        before = None if behind is None else behind[some]
        if FILLING is None:
            _respond(before, k, forward[some], backward[some], hop_us, stop, response[some])
        elif not stop():
            response[some] = FILLING.respond(before, k, forward[some], backward[some], m, hop_us)
    return response


def _respond(
    behind: Responses | None,
    k: int,
    forward: Responses,
    backward: Responses,
    hop_us: int,
    stop: Stop,
    response: Responses,
) -> None:
    """Of some: fills `response`. Here responses stand last, so that what is added and compared lies side by side."""
    number, m = response.shape[:2]
    never = _NEVER[response.dtype]
    free = np.full((m, number), never, dtype=response.dtype)
    ahead = np.full((m, m, number), never, dtype=response.dtype)
    returns = None if behind is None else np.ascontiguousarray(behind.transpose(1, 2, 0))
    fill = min(k - 1, m)
    for step in range(m + fill):
        if stop():
            break
        if step < m:
            free[step] = 0  # forward `step` arrives; before it arrives nothing is heard of it
            free[: step + 1] += forward
            ahead[step] = free
        batch = step - fill
        if batch < 0:
            continue
        if returns is None:
            np.maximum(free[: batch + 1], ahead[batch, : batch + 1], out=free[: batch + 1])
        else:
            sent = min(batch + k - 1, m)
            for start in range(0, sent, _TOGETHER):
                end = min(start + _TOGETHER, sent)
                back = (returns[batch, start:end, None] + ahead[start:end, :end]).max(axis=0) + hop_us * 2
                np.maximum(free[:end], back, out=free[:end])
        free[: step + 1] += backward
        response[:, batch] = free.T


def undominated(
    groups: IntArray, responses: Responses, stop: Stop = never, rank: npt.NDArray[np.intp] | None = None
) -> IntArray:
    """Which responses no other of the same group is as small as everywhere, in `rank` too; of equal ones the first.

    Some of them only where the search has to stop.
    """
    flat = responses.reshape(len(responses), -1)
    weight = np.maximum(flat, 0).sum(axis=1) + (0 if rank is None else rank)
    order = np.lexsort((weight, groups))
    if FILLING is not None:
        found: IntArray = FILLING.undominated(groups, flat, order, rank)
        return found
    if rank is not None:
        flat = np.column_stack([flat, rank.astype(flat.dtype)])
    few = np.ascontiguousarray(flat[:, np.linspace(0, flat.shape[1] - 1, _SOME).astype(np.intp)])
    kept: list[int] = []
    for alike in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1):
        rows, alive = few[alike], np.ones(len(alike), dtype=np.bool_)
        for number, best in enumerate(alike.tolist()):
            if not alive[number]:
                continue
            if stop():
                break
            kept.append(best)
            later = slice(number + 1, None)
            doubtful = np.flatnonzero(alive[later] & (rows[later] >= rows[number]).all(axis=1)) + number + 1
            if len(doubtful):
                alive[doubtful] = (flat[alike[doubtful]] < flat[best]).any(axis=1)
    return np.sort(np.array(kept, dtype=np.int64))
