"""When every pass of every microbatch runs in a pipeline of stages: the exact recurrence (README, pipelines).

Everything takes a batch of pipelines at once: an array of shape (…, P) is one pipeline for each leading index.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from solvers.timeline.pipeline.inputs import ONE_F_ONE_B, Discipline, Hide, Pipelines, prepared
from solvers.timeline.pipeline.order import IntArray, Order, cool_down, waves


@dataclass(frozen=True, slots=True, eq=False)
class _Ends:
    """What one sweep records, (P, M, K): ends of forwards, starts and times of recomputations, ends of backwards."""

    forward: IntArray
    recompute: IntArray
    on_lane: IntArray
    backward: IntArray


@dataclass(frozen=True, eq=False)
class PipelineTimes:
    """One pipeline, or a batch of them: starts and ends of all passes in µs, shape (…, P, M); the rest (…, P).

    `recompute_us` is the recomputation on a stage's lane for each microbatch. It starts before the gradient's arrival
    where it is hidden in a stall. `p2p_us` has shape (…, P − 1).
    """

    order: Order
    hide_in_stalls: Hide
    microbatches: int
    forward_us: IntArray
    backward_us: IntArray
    recompute_us: IntArray
    p2p_us: IntArray
    forward_end_us: IntArray
    recompute_start_us: IntArray
    backward_end_us: IntArray

    @property
    def stages(self) -> int:
        """P."""
        return int(self.forward_us.shape[-1])

    @property
    def forward_start_us(self) -> IntArray:
        """Starts of the forward passes."""
        return self.forward_end_us - self.forward_us[..., None]

    @property
    def backward_start_us(self) -> IntArray:
        """Starts of the backward passes, after their recomputation."""
        return self.backward_end_us - self.backward_us[..., None]

    @property
    def recompute_end_us(self) -> IntArray:
        """Ends of the recomputations."""
        return self.recompute_start_us + self.recompute_us

    @property
    def gradient_us(self) -> IntArray:
        """When the gradient of each backward pass is there; on the last stage, when its own forward pass has ended."""
        arrival = self.backward_end_us[..., 1:, :] + self.p2p_us[..., None]
        return np.concatenate((arrival, self.forward_end_us[..., -1:, :]), axis=-2)

    @property
    def before_us(self) -> IntArray:
        """When the pass right before each backward pass ended on its stage: from then on it could recompute."""
        last = self.forward_end_us[..., -1:]
        if self.order == "gpipe":
            return np.concatenate((self.backward_end_us[..., 1:], last), axis=-1)
        previous = np.concatenate((last, self.backward_end_us[..., :-1]), axis=-1)
        served = np.arange(self.microbatches) + self.stages - 1 - np.arange(self.stages)[:, None]
        served = np.broadcast_to(np.minimum(served, self.microbatches - 1), previous.shape)
        paired = np.take_along_axis(self.forward_end_us, served, axis=-1)
        return np.asarray(np.where(cool_down(self.stages, self.microbatches, self.order), previous, paired))

    @property
    def waited_us(self) -> IntArray:
        """How long each backward pass's gradient is awaited, (…, P, M): the stall that recomputation can hide in."""
        return np.asarray(np.maximum(self.gradient_us - self.before_us, 0))

    @cached_property
    def makespan_us(self) -> IntArray:
        """The end of the last pass, of shape (…): a scalar array for one pipeline."""
        return np.asarray(self.backward_end_us.max(axis=(-2, -1)))

    @property
    def busy_us(self) -> IntArray:
        """Forward and backward time of each stage."""
        return self.microbatches * (self.forward_us + self.backward_us)

    @property
    def recomputing_us(self) -> IntArray:
        """Time that each stage's lane recomputes, hidden in stalls or not."""
        return np.asarray(self.recompute_us.sum(axis=-1))

    @property
    def hidden_us(self) -> IntArray:
        """The part of it that runs while the stage would wait for a gradient anyway."""
        until = np.minimum(self.recompute_end_us, self.gradient_us)
        return np.asarray(np.maximum(until - self.recompute_start_us, 0).sum(axis=-1))

    @property
    def stall_us(self) -> IntArray:
        """The rest of the makespan, each stage's bubble: it waits for a microbatch or a gradient, or is done."""
        return self.makespan_us[..., None] - self.busy_us - self.recomputing_us


def pipeline(
    forward_us: npt.ArrayLike,
    backward_us: npt.ArrayLike,
    *,
    microbatches: int,
    recompute_us: npt.ArrayLike = 0,
    forward_hidden_us: npt.ArrayLike = 0,
    p2p_us: npt.ArrayLike = 0,
    how: Discipline = ONE_F_ONE_B,
) -> PipelineTimes:
    """All start and end times of one step; times in whole µs, of shape (P,) or (…, P) for a batch.

    `recompute_us`: recomputation of a microbatch on the critical path. `forward_hidden_us`: recomputation that the
    windows of the forward pass before hide, which joins the critical path where there is none (cool-down, GPipe, last
    stage). `p2p_us`: between stages, one for all or (…, P − 1). Raises `InvalidInput` on negative or fractional times.
    """
    given = prepared(forward_us, backward_us, microbatches, recompute_us, forward_hidden_us, p2p_us, how)
    depth, count = given.forward.shape
    ends = _Ends(*(np.zeros((depth, microbatches, count), dtype=np.int64) for _ in range(4)))
    _sweep(given, ends)

    def shaped(array: IntArray, *tail: int) -> IntArray:
        return np.moveaxis(array, -1, 0).reshape(*given.shape, *tail)

    return PipelineTimes(
        order=how.order,
        hide_in_stalls=how.hide_in_stalls,
        microbatches=microbatches,
        forward_us=shaped(given.forward, depth),
        backward_us=shaped(given.backward, depth),
        recompute_us=shaped(ends.on_lane, depth, microbatches),
        p2p_us=shaped(given.hops, depth - 1),
        forward_end_us=shaped(ends.forward, depth, microbatches),
        recompute_start_us=shaped(ends.recompute, depth, microbatches),
        backward_end_us=shaped(ends.backward, depth, microbatches),
    )


def pipeline_makespan_us(
    forward_us: npt.ArrayLike,
    backward_us: npt.ArrayLike,
    *,
    microbatches: int,
    recompute_us: npt.ArrayLike = 0,
    forward_hidden_us: npt.ArrayLike = 0,
    p2p_us: npt.ArrayLike = 0,
    how: Discipline = ONE_F_ONE_B,
) -> IntArray:
    """`pipeline(…).makespan_us` without the times in between: for hundreds of thousands of candidates."""
    given = prepared(forward_us, backward_us, microbatches, recompute_us, forward_hidden_us, p2p_us, how)
    found = [_sweep(part, None) for part in given.chunks()]
    return np.concatenate(found).reshape(given.shape) if found else np.zeros(given.shape, dtype=np.int64)


def _sweep(given: Pipelines, ends: _Ends | None) -> IntArray:
    """The makespans, (K,), wave by wave; fills `ends` where it is given.

    A backward pass starts at max(arrival, end before) + r, and where r may be hidden at max(arrival, end before + r +
    ahead) if that is sooner.
    """
    depth, count = given.forward.shape
    recompute, hidden = given.tables()
    more = np.where(hidden, np.concatenate((given.ahead, given.ahead)), 0)
    simple = not more.any()
    lag = np.where(hidden, 0, recompute)
    nothing = np.zeros((1, count), dtype=np.int64)
    into, back = np.concatenate((nothing, given.hops)), np.concatenate((given.hops, nothing))
    free = np.zeros((depth, count), dtype=np.int64)
    activation = np.zeros((depth + 1, count), dtype=np.int64)  # row p: what stage p reads; row 0 is always there
    gradient = np.zeros((depth + 1, count), dtype=np.int64)  # row p + 1: what stage p reads; row P is always there
    cool = cool_down(depth, given.microbatches, given.order)
    for wave in waves(depth, given.microbatches, given.order):
        rows, batches = wave.forward
        if len(rows):
            end = np.maximum(free[rows], activation[rows] + into[rows]) + given.forward[rows]
            free[rows] = activation[rows + 1] = end
            if ends is not None:
                ends.forward[rows, batches] = end
        rows, batches = wave.backward
        if len(rows):
            kind = rows + depth * cool[rows, batches]
            before, arrival = free[rows], gradient[rows + 1] + back[rows]
            begin = np.maximum(arrival + lag[kind], before + recompute[kind] + more[kind])
            if not simple:
                late = np.maximum(arrival, before) + recompute[kind]
                early = hidden[kind] & ((more[kind] == 0) | (begin < late))
                begin = np.where(early, begin, late)
            else:
                early = hidden[kind]
            end = begin + given.backward[rows]
            free[rows] = gradient[rows] = end
            if ends is not None:
                ends.recompute[rows, batches] = np.where(early, before, np.maximum(before, arrival))
                ends.on_lane[rows, batches] = recompute[kind] + np.where(early, more[kind], 0)
                ends.backward[rows, batches] = end
    return np.asarray(free.max(axis=0))
