"""Lower bounds on the step of all partitions with given first stages (README, (B1), (B2))."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solvers.partition.stage_times import StageTimes
from solvers.partition.table import UNFIT, IntArray
from solvers.timeline.pipeline.inputs import Hide
from solvers.timeline.pipeline.order import Order


@dataclass(frozen=True, eq=False)
class PathBounds:
    """Three lengths of each (stage, layers), and the best of each on the stages from p on with k layers, [p][k].

    `trip`: a microbatch down and up through the stage. `lane`: all that the stage does. `rest`: what its lane does
    beside one microbatch's trip, on the heavier of two paths.
    """

    trip: IntArray
    lane: IntArray
    rest: IntArray
    lanes_after: IntArray
    trips_after: IntArray
    rests_after: IntArray

    @property
    def least_us(self) -> int:
        """A bound for every partition; UNFIT or more where none fits."""
        return int(max(self.lanes_after[0, -1], self.trips_after[0, -1] + self.rests_after[0, -1]))


def path_bounds(
    times: StageTimes, microbatches: int, p2p_us: npt.ArrayLike, hide: Hide, order: Order = "1f1b"
) -> PathBounds:
    """(B1) and (B2) as tables; every entry is the length of a path that the recurrence has in all modes of hiding."""
    depth, count = times.stages, microbatches
    last = np.arange(depth)[:, None] == depth - 1
    ahead = depth - 1 - np.arange(depth)[:, None]
    cool = np.where(
        last | (order == "gpipe"), count, np.minimum(ahead, count)
    )  # backward passes that also recompute forward_hidden_us
    forward, backward = times.forward_us, times.backward_us + times.recompute_us
    awaited = times.recompute_us * ~(times.may_hide & (hide != "none")) * ~last + last * (
        times.recompute_us + times.forward_hidden_us
    )
    hops = np.append(np.broadcast_to(np.asarray(p2p_us, dtype=np.int64), depth - 1), 0)[:, None]
    paired = np.maximum(count - 1 - ahead, 0)
    later = np.minimum(cool, count - 1) * times.forward_hidden_us
    lane = count * (forward + backward) + cool * times.forward_hidden_us
    rest = np.maximum((count - 1) * backward + later + paired * forward, (count - 1) * forward + paired * backward)
    if order == "gpipe":  # all forwards, then the last microbatch's trip down and back, then the other backwards
        rest = (count - 1) * (forward + backward + times.forward_hidden_us)
    fits = times.costs_us() < UNFIT
    trip, lane, rest = (
        np.where(fits, table, UNFIT) for table in (forward + times.backward_us + awaited + 2 * hops, lane, rest)
    )
    return PathBounds(
        trip=trip,
        lane=lane,
        rest=rest,
        lanes_after=_after(lane, trip),
        trips_after=_after(np.zeros_like(trip), trip, total=True),
        rests_after=_after(rest, np.zeros_like(rest)),
    )


def _after(peak: IntArray, step: IntArray, total: bool = False) -> IntArray:
    """Best of k layers on the stages from p on, of max(peak, step + rest) (`total`: of step + rest); UNFIT if none."""
    stages, layers = peak.shape[0], peak.shape[1] - 1
    best = np.full((stages + 1, layers + 1), UNFIT, dtype=np.int64)
    best[stages, 0] = 0
    for stage in reversed(range(stages)):
        for count in range(1, layers + 1):
            onward = np.minimum(step[stage, count] + best[stage + 1, : layers + 1 - count], UNFIT)
            found = onward if total else np.maximum(peak[stage, count], onward)
            best[stage, count:] = np.minimum(best[stage, count:], found)
    return best
