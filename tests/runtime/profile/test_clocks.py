"""Timings settle: two in a row agree, enough time has passed, or patience ends; times are made up."""

import time
from collections.abc import Callable, Iterator

import pytest

from runtime.profile import clocks
from runtime.profile.clocks import settled_s


class Readings:
    """A clock that tells these times, each after the wall's clock has moved on by `step_s`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, times: list[float], step_s: float = 0.1) -> None:
        self._times: Iterator[float] = iter(times)
        self._step_s, self._wall_s = step_s, 0.0
        self.taken = 0
        monkeypatch.setattr(time, "perf_counter", lambda: self._wall_s)

    @property
    def shortest_s(self) -> float:
        return 0.0

    def per_call_s(self, work: Callable[[], object], repeats: int, trials: int = 3) -> float:
        self._wall_s += self._step_s
        self.taken += 1
        return next(self._times)


def nothing() -> None:
    return None


def test_two_timings_that_agree_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """3.00, 2.00, 1.50, 1.495: the last two differ by a third of a percent."""
    readings = Readings(monkeypatch, [3.0, 2.0, 1.5, 1.495])
    assert settled_s(readings, nothing, 1) == 1.495
    assert readings.taken == 4


def test_a_clock_that_still_rises_has_not_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two agree after 0.2 s, but 0.5 s are asked for; by then the chip runs twice as fast."""
    readings = Readings(monkeypatch, [3.0, 3.0, 2.0, 1.5, 1.5])
    assert settled_s(readings, nothing, 1, least_s=0.45) == 1.5
    assert readings.taken == 5


@pytest.mark.parametrize(("step_s", "taken"), [(0.1, clocks.MOST_READINGS), (1.0, 3)])
def test_noise_does_not_go_on_for_ever(monkeypatch: pytest.MonkeyPatch, step_s: float, taken: int) -> None:
    """By readings, or by 3 s of the wall's time."""
    readings = Readings(monkeypatch, [1.0, 2.0] * 10, step_s)
    settled_s(readings, nothing, 1)
    assert readings.taken == taken
