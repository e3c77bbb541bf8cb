"""Clocks that tell what a test says they tell, in place of the module `time` of a section."""

from collections.abc import Iterable, Iterator
from itertools import accumulate


class Clock:
    """Stands for the module `time`: each clock has its own readings, and a reading too many is an error.

    `spent` are the differences between readings, in the clock's unit; a section that takes two readings around each
    run is given the run's time and then what passes until the next one.
    """

    def __init__(self, **spent: Iterable[float]) -> None:
        self._readings: dict[str, Iterator[float]] = {
            name: accumulate(each, initial=1000) for name, each in spent.items()
        }

    def perf_counter(self) -> float:
        """Seconds on the wall."""
        return next(self._readings["perf_counter"])

    def process_time(self) -> float:
        """Seconds of the processor."""
        return next(self._readings["process_time"])

    def process_time_ns(self) -> int:
        """Nanoseconds of the processor, of the whole process."""
        return int(next(self._readings["process_time_ns"]))

    def thread_time_ns(self) -> int:
        """Nanoseconds of the processor, of one thread."""
        return int(next(self._readings["thread_time_ns"]))


def alone(*times: float, between: float = 500) -> list[float]:
    """Differences of readings for runs that take these times, with a pause after each that must not count."""
    return [each for time in times for each in (time, between)]
