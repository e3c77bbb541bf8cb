"""What launching costs the host, and the step without swaps when it does (README, Launching)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from solvers.ir.swap import SwapOp, SwapProblem


@dataclass(frozen=True)
class Launches:
    """The host's side of a problem as plain lists by op; `transfer` is its time to issue one transfer.

    `host[j]` is the time to launch op j, `tail[j]` how long it lasts at the least after that; `waiting` lists the ops
    whose end the host waits for. The rest is for `advance`: sums of what is before each op, and for each power of two
    the largest `latest` (how late op j makes the device, if the host began at 0) of that many ops from each op on.
    """

    transfer: int
    host: list[int]
    tail: list[int]
    waiting: frozenset[int]
    host_before: list[int]
    device_before: list[int]
    latest: list[list[int]]

    def advance(self, first: int, stop: int, clock: int, host: int) -> tuple[int, int]:
        """Both clocks after the ops `first`…`stop`−1 ran one after the other, none of which the host waits for.

        Each op ends at the later of "the device never stood still" and "the last op that the host was late with": a
        maximum over the ops, found with two look-ups.
        """
        if first == stop:
            return clock, host
        level = (stop - first).bit_length() - 1
        row = self.latest[level]
        late = max(row[first], row[stop - (1 << level)])
        device = self.device_before
        end = max(clock - device[first], host - self.host_before[first] + late) + device[stop]
        return end, host + self.host_before[stop] - self.host_before[first]

    def following(self, time: Sequence[int], op: int) -> int:
        """How long after the launch of this op the ops behind it end at the least, if only the host holds them up."""
        end, host = -(2**62), 0  # no device holds them up
        for later in range(op + 1, len(time)):
            host += self.host[later]
            end = max(end + time[later], host + self.tail[later])
            host = max(host, end) if later in self.waiting else host
        return max(0, end)


def launches_of(problem: SwapProblem) -> Launches | None:
    """The host's side of a problem, in ticks; None where launching costs nothing, so that the host never matters."""
    if not problem.has_launches:
        return None
    ticks = problem.link.ticks
    host, tail = [op.launch_us * ticks for op in problem.ops], [op.after_launch_us * ticks for op in problem.ops]
    waiting = frozenset(number for number, op in enumerate(problem.ops) if op.host_waits)
    return launches(problem.launch_us * ticks, host, tail, [op.time_us * ticks for op in problem.ops], waiting)


def launches(
    transfer: int,
    host: list[int],
    tail: list[int],
    time: list[int],
    waiting: frozenset[int] = frozenset(),
) -> Launches:
    """The same from lists by op, in ticks; `time` is the device's own."""
    host_before, device_before = [0, *accumulate(host)], [0, *accumulate(time)]
    late = [host_before[op + 1] + tail[op] - device_before[op + 1] for op in range(len(host))]
    return Launches(transfer, host, tail, waiting, host_before, device_before, _maxima(late))


def unswapped_us(ops: Sequence[SwapOp]) -> list[int]:
    """The ends of the ops in a step without swaps, after a 0: op j runs between entries j and j + 1.

    Where launching costs nothing these are the sums of the op times.
    """
    if not any(op.launch_us for op in ops):
        return [0, *accumulate(op.time_us for op in ops)]
    clock = host = 0
    ends = [0]
    for op in ops:
        host += op.launch_us
        clock = max(clock + op.time_us, host + op.after_launch_us)
        if op.host_waits:
            host = max(host, clock)
        ends.append(clock)
    return ends


def _maxima(values: list[int]) -> list[list[int]]:
    """Row k holds at each place the largest of the 2^k values from there on."""
    rows, width = [values], 1
    while 2 * width <= len(values):
        row = rows[-1]
        rows.append([max(row[place], row[place + width]) for place in range(len(row) - width)])
        width *= 2
    return rows
