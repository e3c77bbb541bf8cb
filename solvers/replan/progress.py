"""What a search has reached, when it has to stop, and who watches it."""

import math
import time
from collections.abc import Callable

from solvers.ir.solution import Call, Limits, Watch

Stop = Callable[[], bool]
"""Whether a search has to end; once it has, always."""
ENDED = "the limits ended the search"
NONE_YET = "the limits ended the search before a plan was found: give more time"
_PERIOD_S = 0.2
"""Seconds between calls of the watcher when there is no news."""
GRACE_S = 0.3
"""Seconds after the end of the search in which bounds may still be improved, or nodes chosen for pipelines known."""
_STEPS, GRACE_STEPS = 20_000, 500
"""Steps that a unit of deterministic work allows, and steps behind the end in which bounds may still be improved."""


class Stopped(Exception):
    """A computation was left where it stood, because its search has to end."""


def never() -> bool:
    """No limits: for who calls a part of a solver."""
    return False


def always() -> bool:
    """Nothing more is wanted of what takes this for its limit."""
    return True


class Effort:
    """Deterministic work of one search, in about microseconds of a core, so that its end does not hang on the clock."""

    def __init__(self, most_us: float = math.inf) -> None:
        self.most_us, self.spent_us = most_us, 0

    def spend(self, work_us: int) -> None:
        """Count what is done, when it is begun or as soon as it can be told."""
        self.spent_us += work_us

    def over(self, share: float = 1.0) -> bool:
        """Whether this share of the work is spent."""
        return self.spent_us > share * self.most_us


class Progress:
    """Incumbent and bound of the objective, in microseconds, and the clock of the limits."""

    def __init__(self, limits: Limits, watch: Watch | None) -> None:
        self._limits, self._watch = limits, watch
        self._began = time.perf_counter()
        self._told: tuple[int | None, int | None] | None = None
        self._told_s, self._stopped = 0.0, False
        self._ended_s: float | None = None
        self._steps, self._ended_step = 0, 0
        self._most = math.inf if limits.work is None else _STEPS * limits.work
        self.incumbent_us: int | None = None
        self.bound_us: int | None = None

    def call(self, solver: str) -> Call:
        """What makes the answers of the solver that searches."""
        return Call(solver, self._limits, self._began)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the search began."""
        return time.perf_counter() - self._began

    def stop(self) -> bool:
        """Whether time is up, the gap is small enough, or the watcher has said so; tells it what is new."""
        elapsed, news = self.elapsed_s, (self.incumbent_us, self.bound_us)
        self._steps += 1
        over = elapsed >= self._limits.time_s or self._steps > self._most
        self._stopped = self._stopped or over or self.close_enough()
        if self._watch is not None and (news != self._told or elapsed >= self._told_s + _PERIOD_S):
            self._told, self._told_s = news, elapsed
            self._stopped = self._watch(*news, elapsed) or self._stopped
        if self._stopped and self._ended_s is None:
            self._ended_s, self._ended_step = elapsed, self._steps
        return self._stopped

    @property
    def left_s(self) -> float:
        """Seconds until the limit; none where the search has to stop."""
        return 0.0 if self.stop() else self._limits.time_s - self.elapsed_s

    def late(self) -> bool:
        """Whether the search had to stop so long ago that not even a bound is worth waiting for."""
        if not self.stop():
            return False
        if self._limits.work is not None:
            return self._steps >= self._ended_step + GRACE_STEPS
        return self.elapsed_s >= (self._ended_s or 0.0) + GRACE_S

    def close_enough(self) -> bool:
        """The relative gap of the limits, where one is given."""
        incumbent, bound = self.incumbent_us, self.bound_us
        if not self._limits.gap or incumbent is None or bound is None:
            return False
        return incumbent - bound <= self._limits.gap * incumbent
