"""What each stage takes with each number of layers: the inputs of a pipeline, for every partition at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solvers.ir.errors import InvalidInput
from solvers.partition.table import UNFIT, BoolArray, IntArray, restricted
from solvers.timeline.pipeline.inputs import Discipline, Hide
from solvers.timeline.pipeline.order import Order
from solvers.timeline.pipeline.times import pipeline_makespan_us


@dataclass(frozen=True, eq=False)
class StageTimes:
    """Tables [p][n], n = 0…layers, in µs for one microbatch; the arguments of `timeline.pipeline` stage by stage.

    `fits` says whether n layers fit stage p, `may_hide` whether it has the memory to recompute in stalls, `ahead_us`
    what that takes besides.
    """

    forward_us: IntArray
    backward_us: IntArray
    recompute_us: IntArray
    forward_hidden_us: IntArray
    ahead_us: IntArray
    may_hide: BoolArray
    fits: BoolArray

    @property
    def stages(self) -> int:
        """P."""
        return int(self.forward_us.shape[0])

    @property
    def layers(self) -> int:
        """L."""
        return int(self.forward_us.shape[1]) - 1

    def costs_us(self) -> IntArray:
        """The table c(p, n) of a partition problem: forward, backward and critical recomputation; UNFIT elsewhere."""
        return restricted(np.where(self.fits, self.forward_us + self.backward_us + self.recompute_us, UNFIT))


def stage_times(
    forward_us: npt.ArrayLike,
    backward_us: npt.ArrayLike,
    *,
    recompute_us: npt.ArrayLike = 0,
    forward_hidden_us: npt.ArrayLike = 0,
    ahead_us: npt.ArrayLike = 0,
    may_hide: npt.ArrayLike = True,
    fits: npt.ArrayLike = True,
) -> StageTimes:
    """Tables of one shape (stages, layers + 1) from arrays that broadcast to it; whole non-negative µs.

    Raises `InvalidInput` on other shapes and values. What stands where nothing fits does not matter, if it is whole.
    """
    named = {
        "forward_us": np.asarray(forward_us),
        "backward_us": np.asarray(backward_us),
        "recompute_us": np.asarray(recompute_us),
        "forward_hidden_us": np.asarray(forward_hidden_us),
        "ahead_us": np.asarray(ahead_us),
    }
    may, fitting = np.asarray(may_hide, dtype=np.bool_), np.asarray(fits, dtype=np.bool_)
    try:
        shape = np.broadcast_shapes(*(array.shape for array in named.values()), may.shape, fitting.shape)
    except ValueError as error:
        raise InvalidInput(f"the tables do not match ({error}): give each shape (stages, layers + 1)") from error
    if len(shape) != 2 or shape[0] < 1 or shape[1] < 2:
        raise InvalidInput(f"the tables have shape {shape}: give (stages, layers + 1) with at least one layer")
    may, fitting = np.broadcast_to(may, shape), np.broadcast_to(fitting, shape)
    times = {}
    for name, array in named.items():
        if array.dtype.kind not in "iu":
            raise InvalidInput(f"{name} is of type {array.dtype}: give whole microseconds")
        times[name] = np.where(fitting, np.broadcast_to(array, shape), 0).astype(np.int64)
        if times[name].min() < 0:
            raise InvalidInput(f"{name} holds {times[name].min()}: times are at least 0")
    return StageTimes(**times, may_hide=may, fits=fitting)


def makespans_us(
    times: StageTimes,
    layers: Sequence[Sequence[int]] | IntArray,
    microbatches: int,
    p2p_us: npt.ArrayLike = 0,
    hide_in_stalls: Hide = "none",
    order: Order = "1f1b",
) -> IntArray:
    """The step of each partition (rows of `layers`, each of which fits), by the exact recurrence."""
    chosen = np.asarray(layers, dtype=np.int64).reshape(-1, times.stages)
    stages = np.arange(times.stages)
    return pipeline_makespan_us(
        times.forward_us[stages, chosen],
        times.backward_us[stages, chosen],
        recompute_us=times.recompute_us[stages, chosen],
        forward_hidden_us=times.forward_hidden_us[stages, chosen],
        microbatches=microbatches,
        p2p_us=p2p_us,
        how=Discipline(
            order=order,
            may_hide=times.may_hide[stages, chosen],
            hide_in_stalls=hide_in_stalls,
            ahead_us=times.ahead_us[stages, chosen],
        ),
    )
