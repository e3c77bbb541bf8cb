"""In which order a stage runs its passes, and which passes can be evaluated at once (README, pipelines)."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Order = Literal["1f1b", "gpipe"]
ORDERS: tuple[Order, ...] = ("1f1b", "gpipe")


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of one microbatch through one stage."""

    kind: Literal["forward", "backward"]
    microbatch: int


@dataclass(frozen=True, slots=True, eq=False)
class Wave:
    """Passes on different stages, each of which waits for earlier waves only: (stages, microbatches) by direction."""

    forward: tuple[IntArray, IntArray]
    backward: tuple[IntArray, IntArray]


def warm_up(stage: int, depth: int, microbatches: int) -> int:
    """Forward passes of a 1F1B stage before its first forward-backward pair: min(P − 1 − p, M)."""
    return min(depth - 1 - stage, microbatches)


def stage_order(stage: int, depth: int, microbatches: int, order: Order = "1f1b") -> list[Pass]:
    """A stage's passes in the order that it runs them.

    1F1B: warm-up forwards, then one forward and one backward in turn, then the backwards left over (cool-down). GPipe:
    every forward, then every backward, last microbatch first.
    """
    forwards = [Pass("forward", number) for number in range(microbatches)]
    backwards = [Pass("backward", number) for number in range(microbatches)]
    if order == "gpipe":
        return forwards + backwards[::-1]
    fill = warm_up(stage, depth, microbatches)
    pairs = zip(forwards[fill:], backwards, strict=False)
    return forwards[:fill] + [one for pair in pairs for one in pair] + backwards[microbatches - fill :]


def cool_down(depth: int, microbatches: int, order: Order = "1f1b") -> BoolArray:
    """`[stage, microbatch]`: whether no forward of a later microbatch runs right before this backward pass.

    In 1F1B these are the last P − 1 − p backwards of stage p; the last stage has none. In GPipe all are.
    """
    if order == "gpipe":
        return np.ones((depth, microbatches), dtype=np.bool_)
    ahead = depth - 1 - np.arange(depth)[:, None]
    return np.asarray(np.arange(microbatches)[None, :] + ahead >= microbatches)


@lru_cache(maxsize=64)
def waves(depth: int, microbatches: int, order: Order = "1f1b") -> tuple[Wave, ...]:
    """All passes, wave by wave.

    A wave is a tick of the clock if every pass took one: 1F1B runs F(p, m) at p + m in the warm-up (m ≤ P − 1 − p) and
    at p + 2m after it, B(p, m) at 2P − 1 − p + 2m. What a pass waits for (the pass before it on its stage; F(p − 1, m)
    or B(p + 1, m)) stands in an earlier wave, and a stage runs no second pass of one direction before the first one has
    been fetched by its neighbour: so one buffer for each stage and direction is enough.
    """
    stage, batch = np.meshgrid(np.arange(depth), np.arange(microbatches), indexing="ij")
    if order == "gpipe":
        forward = stage + batch
        backward = microbatches + 2 * (depth - 1) - stage + (microbatches - 1 - batch)
    else:
        forward = stage + np.where(batch <= depth - 1 - stage, batch, 2 * batch)
        backward = 2 * depth - 1 - stage + 2 * batch
    count = int(backward.max()) + 1
    both = zip(_by_tick(forward, count), _by_tick(backward, count), strict=True)
    return tuple(Wave(first, second) for first, second in both if len(first[0]) or len(second[0]))


def _by_tick(tick: IntArray, count: int) -> list[tuple[IntArray, IntArray]]:
    """For each tick the stages and microbatches of its passes."""
    order = np.argsort(tick, axis=None, kind="stable")
    stages, batches = np.unravel_index(order, tick.shape)
    ends = np.searchsorted(tick.ravel()[order], np.arange(count + 1))
    return [(stages[a:b].astype(np.int64), batches[a:b].astype(np.int64)) for a, b in pairwise(ends)]
