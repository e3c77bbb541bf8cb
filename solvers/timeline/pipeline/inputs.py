"""The inputs of a pipeline's recurrence: checked, broadcast against each other, one column for each pipeline."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from solvers.ir.errors import InvalidInput
from solvers.ir.fields import LARGEST
from solvers.ir.names import unknown
from solvers.timeline.pipeline.order import ORDERS, BoolArray, IntArray, Order

Hide = Literal["none", "cooldown", "all"]
"""Where recomputation may start before the gradient has arrived: nowhere; in the cool-down (paper §4.2); anywhere."""
CHUNK = 1 << 16
"""Stage times that are swept at once, so that the working arrays stay in the processor's cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Pipelines:
    """Checked inputs: one column for each pipeline, (P, K); `hops` has P − 1 rows."""

    forward: IntArray
    backward: IntArray
    recompute: IntArray
    forward_hidden: IntArray
    ahead: IntArray
    hops: IntArray
    hide: BoolArray
    microbatches: int
    order: Order
    mode: Hide
    shape: tuple[int, ...]

    def tables(self) -> tuple[IntArray, BoolArray]:
        """Recomputation on the lane, and whether it may start early, of steady passes above those of the cool-down.

        What the steady state hides in the windows of the forward pass before has no window in the cool-down, nor on the
        last stage, whose forward pass before is of the same microbatch.
        """
        cool = self.recompute + self.forward_hidden
        steady = np.concatenate((self.recompute[:-1], cool[-1:]))
        table = np.concatenate((steady, cool))
        early = self.hide & (self.mode == "all"), self.hide & (self.mode != "none")
        return table, np.concatenate(early) & (table > 0)

    def chunks(self) -> Iterator["Pipelines"]:
        """The same pipelines, some at a time."""
        depth, count = self.forward.shape
        step = max(1, CHUNK // depth)
        for begin in range(0, count, step):
            part = slice(begin, begin + step)
            yield Pipelines(
                forward=self.forward[:, part],
                backward=self.backward[:, part],
                recompute=self.recompute[:, part],
                forward_hidden=self.forward_hidden[:, part],
                ahead=self.ahead[:, part],
                hops=self.hops[:, part],
                hide=self.hide[:, part],
                microbatches=self.microbatches,
                order=self.order,
                mode=self.mode,
                shape=(min(step, count - begin),),
            )


@dataclass(frozen=True)
class Discipline:
    """How stages work: the order of their passes, and what they recompute while they wait (`Hide`).

    `may_hide` says which stages have the memory for that (`hiding_fits`), one for all or of shape (…, P). `ahead_us`:
    what recomputing before the gradient takes besides, since it is computed from what windows of the backward pass
    itself would have recomputed.
    """

    order: Order = "1f1b"
    hide_in_stalls: Hide = "none"
    may_hide: npt.ArrayLike = True
    ahead_us: npt.ArrayLike = 0


ONE_F_ONE_B = Discipline()
"""One forward, one backward; recomputation waits until the gradient is there."""


def prepared(
    forward_us: npt.ArrayLike,
    backward_us: npt.ArrayLike,
    microbatches: int,
    recompute_us: npt.ArrayLike,
    forward_hidden_us: npt.ArrayLike,
    p2p_us: npt.ArrayLike,
    how: Discipline,
) -> Pipelines:
    """The inputs checked, broadcast against each other, one column for each pipeline."""
    if how.order not in ORDERS:
        raise unknown("order", how.order, ORDERS)
    if how.hide_in_stalls not in get_args(Hide):
        raise unknown("choice for hide_in_stalls", how.hide_in_stalls, get_args(Hide))
    if microbatches < 1:
        raise InvalidInput(f"microbatches is {microbatches}: a step has at least 1")
    names = ("forward_us", "backward_us", "recompute_us", "forward_hidden_us", "ahead_us")
    values = (forward_us, backward_us, recompute_us, forward_hidden_us, how.ahead_us)
    times = [_whole(name, value) for name, value in zip(names, values, strict=True)]
    may, hops = np.asarray(how.may_hide, dtype=np.bool_), _whole("p2p_us", p2p_us)
    if not times[0].ndim or not times[0].shape[-1]:
        raise InvalidInput("forward_us lists no stage: give one time a stage")
    try:
        *times, may = np.broadcast_arrays(*times, may, subok=False)
        *batch, depth = times[0].shape
        hops = np.broadcast_to(hops, (*batch, depth - 1))
    except ValueError as error:
        shapes = ", ".join(f"{name} {value.shape}" for name, value in zip(names, times, strict=False))
        raise InvalidInput(f"{shapes} and p2p_us {hops.shape} do not match: give one time a stage") from error
    _require_range(times, hops, microbatches)

    def columns(array: npt.NDArray[np.generic], rows: int) -> npt.NDArray[np.generic]:
        return np.ascontiguousarray(np.moveaxis(array.reshape(-1, rows), 0, -1))

    forward, backward, recompute, hidden, ahead = (
        columns(array, depth).astype(np.int64, copy=False) for array in times
    )
    return Pipelines(
        forward=forward,
        backward=backward,
        recompute=recompute,
        forward_hidden=hidden,
        ahead=ahead,
        hops=np.ascontiguousarray(hops.reshape(int(np.prod(batch)), depth - 1).T),
        hide=columns(may, depth).astype(np.bool_),
        microbatches=microbatches,
        order=how.order,
        mode=how.hide_in_stalls,
        shape=tuple(batch),
    )


def _whole(name: str, value: npt.ArrayLike) -> IntArray:
    """Whole non-negative microseconds."""
    array = np.asarray(value)
    if array.dtype.kind not in "iu" and array.size:
        raise InvalidInput(f"{name} is of type {array.dtype}: give whole microseconds")
    if array.size and (array.min() < 0 or array.max() > LARGEST):
        wrong = array.min() if array.min() < 0 else array.max()
        raise InvalidInput(f"{name} holds {wrong}, outside 0…{LARGEST}: correct it")
    return array.astype(np.int64)


def _require_range(times: list[IntArray], hops: IntArray, microbatches: int) -> None:
    """A sum of all that is in the step below 2⁶², so that no time overflows."""
    longest = sum(int(array.max(initial=0)) for array in (*times, 2 * hops))
    if 4 * longest * times[0].shape[-1] * microbatches >= 1 << 62:
        raise InvalidInput(f"times of up to {longest} us for {microbatches} microbatches: give smaller ones")
