"""Which policy is the best as measured, and what else is tried once all of a portfolio have been: the best one, planned
for more of the budget.

A replay of what a policy's blocks would find in segments (`solvers/timeline/segments`) frees each tensor after its last
use, and moves nothing. So it asks for room that no program needs, and policies that pass it leave more of the budget
than they must. The engine puts blocks that lie in the way elsewhere; whether that suffices is measured, not foreseen.
"""

import math
from collections.abc import Sequence

from runtime.swap.report import PolicyResult, SessionCounts

TRIES = 2
"""So many more policies are tried at most."""
MOST = 0.98
"""Share of the budget that is tried first: plans for more of it may run as well once, and need passive swaps as soon as
something lies elsewhere."""
FINEST = 0.005
"""Share of the budget by which a try has to differ from what was tried before."""
SLOWER = 0.005
"""Share of the time by which a policy may be slower than the best if it keeps more on the device."""


class Tightening:
    """Tries of the best policy for more of `budget_bytes`, `MOST` first, then half of what is between."""

    def __init__(self, budget_bytes: int, tries: int = TRIES) -> None:
        self._budget_bytes = budget_bytes
        self._most_bytes = int(MOST * budget_bytes)
        self._too_much: int | None = None
        self._left = tries
        self._places: list[int] = []

    def __contains__(self, place: int) -> bool:
        """Whether the policy of that place is such a try."""
        return place in self._places

    def best(self, results: Sequence[PolicyResult]) -> int | None:
        """The place of the fastest measured policy, then of each try that serves as well; None where none was."""
        ran = [place for place, result in enumerate(results) if result.counts is not None]
        portfolio = [place for place in ran if place not in self]
        if not portfolio:
            return None
        best = min(portfolio, key=lambda place: _merit(results[place]))
        for place in self._places:
            if place in ran and _serves(results[place], results[best]):
                best = place
        return best

    def next(self, results: Sequence[PolicyResult], aims: Sequence[int]) -> tuple[int, int] | None:
        """The place of the policy to be planned again, and for how many bytes; None where nothing is left to try.

        `aims` are the bytes that each policy was planned for. The latest one is the first of the results without
        counts if its plan was an earlier one's.
        """
        place, latest = self.best(results), len(results) - 1
        if place is None or self._left == 0:
            return None
        least = aims[place]
        if latest in self and results[latest].counts is None:
            least = max(least, aims[latest])
        elif latest in self and place != latest:
            self._too_much = aims[latest]
        aim = self._most_bytes if self._too_much is None else (least + self._too_much + 1) // 2
        if aim - least < FINEST * self._budget_bytes:
            return None
        self._left -= 1
        self._places.append(len(results))
        return place, aim


def ran_last(results: Sequence[PolicyResult], place: int | None) -> bool:
    """Whether the policy of that place was executed last, with nothing on demand: what lies where it lies suits it."""
    ran = [number for number, result in enumerate(results) if result.counts is not None]
    counts = results[ran[-1]].counts if ran and ran[-1] == place else None
    return counts is not None and counts.fallbacks + counts.passive + counts.retries == 0


def retries(result: PolicyResult) -> int:
    """How often the allocator gave its cache back under a policy; 0 where it was not executed."""
    return 0 if result.counts is None else result.counts.retries


def _merit(result: PolicyResult) -> tuple[bool, float, int, int]:
    counts = result.counts or SessionCounts()
    duration = math.inf if result.duration_us is None else result.duration_us
    return counts.retries > 0, duration, counts.fallbacks + counts.passive, result.objective_us or 0


def _serves(result: PolicyResult, than: PolicyResult) -> bool:
    """Whether a policy that keeps more on the device does as well as another one: faster, or with no more on demand."""
    counts, others = result.counts or SessionCounts(), than.counts or SessionCounts()
    if result.duration_us is None or than.duration_us is None or counts.retries + counts.failed > 0:
        return False
    calm = counts.fallbacks + counts.passive <= others.fallbacks + others.passive
    return result.duration_us <= (1 + SLOWER if calm else 1 - SLOWER) * than.duration_us
