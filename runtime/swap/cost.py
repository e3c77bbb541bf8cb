"""What swapping costs: the time of an iteration beside that of one without swapping."""

from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import Literal, NamedTuple, Protocol

LATEST = 16
"""Number of latest iterations of each sort that are compared."""
BELIEVED = 0.5
"""The least share of what an iteration takes at least that marks may say it would take without swapping."""


class Clock(Protocol):
    """When an iteration began and ended on the device (`core.SwapClock`)."""

    @property
    def done(self) -> bool:
        """Whether the device has finished the iteration."""
        ...

    @property
    def measured(self) -> bool:
        """Whether marks say where the iteration's time went."""
        ...

    def duration_us(self) -> float:
        """Its device time; waits for the end."""
        ...

    def without_swapping_us(self) -> float:
        """What it would have taken without swapping, replayed from the marks; waits for the end."""
        ...


@dataclass(frozen=True, kw_only=True)
class SwapCost:
    """What swapping costs an iteration of one kind, in microseconds of device time.

    `step_us` is the median of the latest iterations in which something was swapped, where there are some under the
    policy that is kept, of these alone. `without_us` is that of the latest ones in which nothing was
    (`how="measured"`), or, where there was none, what marks say that an iteration would take (`how="estimated"`):
    operators take as long as they did, nobody waits for copies, and the host launches none. Where the allocator let
    the host wait for memory, that counts as the program's own time.
    """

    step_us: float
    without_us: float
    how: Literal["measured", "estimated"]

    @property
    def overhead(self) -> float:
        """The share by which an iteration takes longer."""
        return self.step_us / self.without_us - 1 if self.without_us > 0 else 0.0

    def __str__(self) -> str:
        """One line."""
        return (
            f"{self.step_us:.0f} us an iteration (measured), {self.without_us:.0f} us without swapping ({self.how}): "
            f"{self.overhead:+.1%}"
        )


class _Ended(NamedTuple):
    clock: Clock
    operators: int


class StepTimes:
    """The times of one kind of iterations, read from the device only on request."""

    def __init__(self) -> None:
        self._swapped = deque[_Ended](maxlen=LATEST)
        self._settled = deque[_Ended](maxlen=LATEST)  # of these, those under the policy that is kept
        self._plain = deque[_Ended](maxlen=LATEST)
        self._marked: dict[bool, _Ended] = {}  # by whether the kind was settled

    def lacks_marks(self, *, settled: bool) -> bool:
        """Whether marks are wanted: of one iteration before the kind's policy is settled, and of one after."""
        return settled not in self._marked

    def ended(self, clock: Clock, *, swapped: bool, settled: bool = False, operators: int = 1) -> None:
        """An iteration of so many operators has ended in which something was swapped, or nothing.

        Before or after a policy was `settled`.
        """
        ended = _Ended(clock, operators)
        (self._swapped if swapped else self._plain).append(ended)
        if swapped and settled:
            self._settled.append(ended)
        if clock.measured:
            self._marked[settled] = ended

    def at_most(self, us: float) -> float:
        """That long or, if less, what marks say that an iteration would take without swapping; waits for them.

        Those that say less than `BELIEVED` of it are not believed: marks are of one early iteration, in which much may
        have been swapped.
        """
        told = (ended.clock.without_swapping_us() for ended in self._marked.values())
        return min([us, *(marked for marked in told if marked >= BELIEVED * us)])

    def cost(self) -> SwapCost | None:
        """None where nothing was swapped, or where it is not known yet how long an iteration takes otherwise.

        Iterations that the device has not finished are left out, so that nobody waits for them. Where those of a kind
        have more or fewer operators, times are those of as many as the steps have (by Eq. 1 all take the mean).
        """
        steps = [ended for ended in self._settled if ended.clock.done]
        steps = steps or [ended for ended in self._swapped if ended.clock.done]
        if not steps:
            return None
        step_us = median(ended.clock.duration_us() for ended in steps)
        operators = median(ended.operators for ended in steps)

        def of_as_many(took_us: float, ended: _Ended) -> float:
            return took_us * operators / ended.operators

        plain = [of_as_many(ended.clock.duration_us(), ended) for ended in self._plain if ended.clock.done]
        if plain:
            return SwapCost(step_us=step_us, without_us=median(plain), how="measured")
        marked = [ended for ended in self._marked.values() if ended.clock.done]
        if marked:
            least_us = min(of_as_many(ended.clock.without_swapping_us(), ended) for ended in marked)
            return SwapCost(step_us=step_us, without_us=least_us, how="estimated")
        return None
