"""Which policy is the best as measured, and what else is tried once all of a portfolio have been: the best one, planned
for more of the budget, or for less where it needs help.

A replay of what a policy's blocks would find in segments (`solvers/timeline/segments`) frees each tensor after its last
use, and moves nothing. So it asks for room that no program needs, and policies that pass it leave more of the budget
than they must; others find blocks elsewhere than in the replay, and need passive swaps. The engine puts blocks that lie
in the way elsewhere; whether that suffices is measured, not foreseen.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from runtime.swap.report import PolicyResult, SessionCounts

TRIES = 4
"""So many more iterations are tried at most."""
MOST = 0.98
"""Share of the budget that is tried first: plans for more of it may run as well once, and need passive swaps as soon as
something lies elsewhere."""
LEFT_OVER = 0.05
"""Where a plan for `MOST` leaves more than this share of the budget, as tensors are large, all of it is tried."""
LESS = 0.03
"""Share of the budget by which a policy that needs help is planned for less."""
HOPELESS = 0.05
"""Share of the time by which a policy is so slow that it does not run once more."""
FINEST = 0.005
"""Share of the budget by which a try has to differ from what was tried before."""
SLOWER = 0.005
"""Share of the time by which a policy may be slower than the best if it keeps more on the device."""


class Aimed(NamedTuple):
    """What a policy was planned for, and the most that it promises to have in use: bytes."""

    aim: int
    peak: int


class Tightening:
    """Tries of the best policy for more of `budget_bytes`, `MOST` first, then half of what is between.

    One that just fails to serve in its first iteration runs once more, as what lies where it lies is then its own, and
    so does one that had blocks moved; where it needs help again, the slower one counts (`slower`).
    """

    def __init__(self, budget_bytes: int, tries: int = TRIES) -> None:
        self._budget_bytes = budget_bytes
        self._too_much: int | None = None
        self._too_little: int | None = None
        self._least = 0
        self._left = tries
        self._places: list[int] = []
        self._asked = set[tuple[int, int]]()
        self._again: int | None = None

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

    def again(self, results: Sequence[PolicyResult], planned: Sequence[Aimed]) -> bool:
        """A policy has been executed: whether it is to be once more, as a try that nearly serves, or may by chance."""
        latest = len(results) - 1
        if latest not in self:
            return False
        self._left -= 1
        if self._left == 0 or self._again == latest or retries(results[latest]) > 0:
            return False
        ran, best = results[latest], self.best(results)
        if best != latest and best is not None and _hopeless(ran, results[best]):
            return False
        moved = ran.counts is not None and ran.counts.moved > 0
        sure = best == latest and not moved and planned[latest].aim <= MOST * self._budget_bytes
        self._again = None if sure else latest
        return not sure

    def next(self, results: Sequence[PolicyResult], planned: Sequence[Aimed]) -> tuple[int, int] | None:
        """The place of the policy to be planned again, and for how many bytes; None where nothing is left to try.

        The latest one is the first of the results without counts if its plan was an earlier one's.
        """
        place, latest = self.best(results), len(results) - 1
        if place is None or self._left == 0:
            return None
        if latest in self and place != latest:
            executed = results[latest].counts is not None
            if not executed and planned[latest].peak < planned[place].peak:
                return None
            self._note(planned[latest], planned[place], executed=executed)
        aim = self._higher(planned[place], self._least)
        if aim is None and _help(results[place]) > 0:
            self._too_much, aim = planned[place].peak, self._lower(planned[place].peak)
        if aim is None or (place, aim) in self._asked:  # whose plan was an earlier one's
            return None
        self._asked.add((place, aim))
        self._places.append(len(results))
        return place, aim

    def _note(self, latest: Aimed, best: Aimed, *, executed: bool) -> None:
        """A try has not served, or was not executed, as its plan was an earlier one's: the best one's, or of another
        that has not served.
        """
        if not executed and latest.peak == best.peak:
            self._least = max(self._least, latest.aim)
        elif latest.peak >= best.peak:
            size = latest.peak if executed else latest.aim
            self._too_much = size if self._too_much is None else min(size, self._too_much)
        else:
            self._too_little = min(latest.peak, self._too_little or latest.peak)

    def _higher(self, best: Aimed, least: int) -> int | None:
        """Between what the best one was planned for and what was too much; None where nothing worth a try is."""
        least, most = max(best.aim, least), int(MOST * self._budget_bytes)
        if self._too_much is not None:
            aim = (least + self._too_much + 1) // 2
        elif least < most or best.peak > (1 - LEFT_OVER) * self._budget_bytes:
            aim = most
        else:
            aim = self._budget_bytes
        return aim if aim - least >= FINEST * self._budget_bytes else None

    def _lower(self, peak: int) -> int:
        """For less than the best one, which needs help, and than what has not served either."""
        return min(peak, self._too_little or peak) - int(LESS * self._budget_bytes)


def ran_last(results: Sequence[PolicyResult], place: int | None) -> bool:
    """Whether the policy of that place was executed last, with nothing on demand: what lies where it lies suits it."""
    ran = [number for number, result in enumerate(results) if result.counts is not None]
    counts = results[ran[-1]].counts if ran and ran[-1] == place else None
    return counts is not None and counts.fallbacks + counts.passive + counts.retries == 0


def slower(result: PolicyResult, before: PolicyResult | None) -> PolicyResult:
    """What two iterations under a policy tell: the later one, or the longer time and most help where none is sure."""
    if before is None or _help(result) == 0 or (before.duration_us or 0) <= (result.duration_us or 0):
        return result
    needy = max(before, result, key=lambda one: (retries(one), _help(one)))
    return replace(needy, duration_us=before.duration_us)


def retries(result: PolicyResult) -> int:
    """How often the allocator gave its cache back under a policy; 0 where it was not executed."""
    return 0 if result.counts is None else result.counts.retries


def _merit(result: PolicyResult) -> tuple[bool, float, int, int]:
    counts = result.counts or SessionCounts()
    duration = math.inf if result.duration_us is None else result.duration_us
    return counts.retries > 0, duration, _help(result), result.objective_us or 0


def _help(result: PolicyResult) -> int:
    """How often a policy needed what it had not planned."""
    counts = result.counts or SessionCounts()
    return counts.fallbacks + counts.passive


def _hopeless(result: PolicyResult, than: PolicyResult) -> bool:
    """Whether a policy is so much slower that another iteration would not change that."""
    return (result.duration_us or 0) > (1 + HOPELESS) * (than.duration_us or math.inf)


def _serves(result: PolicyResult, than: PolicyResult) -> bool:
    """Whether a policy that keeps more on the device does as well as another one: faster, or with no more on demand."""
    counts = result.counts or SessionCounts()
    if result.duration_us is None or than.duration_us is None or counts.retries + counts.failed > 0:
        return False
    calm = _help(result) <= _help(than)
    return result.duration_us <= (1 + SLOWER if calm else 1 - SLOWER) * than.duration_us
