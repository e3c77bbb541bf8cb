"""How long one call of something takes, on the clock that its device keeps."""

import statistics
import time
from collections.abc import Callable
from typing import Protocol

import torch

TRIALS = 3
AGREE = 0.01
"""Relative difference below which two timings in a row count as equal."""
MOST_READINGS = 8
"""Timings after which the last one counts, whether it agrees with the one before or not."""


class CallClock(Protocol):
    """Measures calls on one device."""

    @property
    def shortest_s(self) -> float:
        """Shortest call worth measuring: a shorter one measures launching or the host's caches, not the device."""
        ...

    def per_call_s(self, work: Callable[[], object], repeats: int, trials: int = TRIALS) -> float:
        """Seconds that each further call of `work` takes when calls follow each other."""
        ...


class EventClock:
    """An accelerator's clock: timing events on the current stream.

    The time of a call is the slope between two runs of different length, so what starts and ends a run does not count.
    """

    shortest_s = 50e-6

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def per_call_s(self, work: Callable[[], object], repeats: int, trials: int = TRIALS) -> float:
        """Seconds of a call, the median of the slopes."""
        work()
        slopes = [(self._run_s(work, 2 * repeats) - self._run_s(work, repeats)) / repeats for _ in range(trials)]
        return max(statistics.median(slopes), 1e-9)

    def _run_s(self, work: Callable[[], object], calls: int) -> float:
        """Seconds from an idle device to the end of that many calls."""
        torch.accelerator.synchronize(self._device)
        begin, end = (torch.Event(self._device, enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(calls):
            work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1000


class HostClock:
    """The host's clock, for work that is done when the call returns."""

    shortest_s = 5e-3

    def per_call_s(self, work: Callable[[], object], repeats: int, trials: int = TRIALS) -> float:
        """Seconds of a call, the least of the runs: a busy machine only ever adds."""
        work()
        return max(min(self._run_s(work, repeats) for _ in range(trials)) / repeats, 1e-9)

    def _run_s(self, work: Callable[[], object], calls: int) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            work()
        return time.perf_counter() - begin


def clock_of(device: torch.device) -> CallClock:
    """The clock that the device keeps."""
    return HostClock() if device.type == "cpu" else EventClock(device)


def settled_s(
    clock: CallClock, work: Callable[[], object], repeats: int, *, least_s: float = 0.0, most_s: float = 3.0
) -> float:
    """Seconds of a call once two timings in a row agree, or after `most_s` of the wall's time, or some timings.

    An idle chip runs at a fraction of its clock and takes a while to rise, evenly enough for two timings to agree on
    the way: so nothing before `least_s` counts.
    """
    begin = time.perf_counter()
    before = clock.per_call_s(work, repeats)
    readings = 1
    while True:
        now = clock.per_call_s(work, repeats)
        spent_s = time.perf_counter() - begin
        readings += 1
        settled = abs(now - before) <= AGREE * max(now, before)
        if spent_s >= least_s and (settled or readings >= MOST_READINGS or spent_s >= most_s):
            return now
        before = now
