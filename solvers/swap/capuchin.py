"""`capuchin-swap`: Capuchin's swap policy (Peng et al., ASPLOS 2020), reconstructed (README, `capuchin-swap`)."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from solvers.ir.errors import InvalidInput, require_at_least
from solvers.ir.solution import Call, Limits, Solution, Watch
from solvers.ir.swap import SwapPlan, SwapProblem
from solvers.swap.answers import feasible, trivial, whatever_fits
from solvers.swap.evaluate import Choice, Instance, Timeline, evaluate, instance
from solvers.swap.host import HostLoad

OWN_FAILED = "Capuchin's own choice leaves an op without memory, so every candidate is swapped"
TOO_LITTLE_HOST = "Capuchin's own choice needs more host memory, so a model chose other candidates"


@dataclass(frozen=True)
class CapuchinSwap:
    """Swap the tensors of the longest Free Time until memory suffices, and learn the in-triggers from stalls.

    Every candidate is judged as if the host link were its own: neither the choice nor the first in-trigger knows that
    transfers queue. Feedback then moves an in-trigger earlier by `step` of its swap-in time wherever an op had to wait
    for it, over at most `iterations` measured iterations; the best of them is the answer. FEASIBLE with bound None.
    """

    iterations: int = 50
    step: float = 0.05
    NAME = "capuchin-swap"

    def __post_init__(self) -> None:
        """Refuse parameters that cannot mean anything."""
        require_at_least(0, iterations=self.iterations)
        if not 0 < self.step <= 1:
            raise InvalidInput(f"step is {self.step}, not in (0, 1]: give a share of a swap-in's time")

    def solve(self, problem: SwapProblem, limits: Limits, watch: Watch | None = None) -> Solution[SwapPlan]:
        """A plan within a second; INFEASIBLE with the least budget where no plan exists.

        Where host memory is so short that the policy finds none, an engine looks for one within the limits.
        """
        call = Call(self.NAME, limits)
        given = instance(problem)
        known = trivial(problem, given, call)
        if known is not None:
            return known
        best, reason = _Policy(given, self).best(lambda: call.left_s <= 0), None
        if best is None:
            found = whatever_fits(problem, given, call)
            if isinstance(found, Solution):
                return found
            best, reason = found, OWN_FAILED if len(found[0]) == len(given.size) else TOO_LITTLE_HOST
        return feasible(problem, given, call, best, reason=reason)


def free_time(given: Instance, tensor: int) -> int:
    """FT: what remains between the two uses beside the two transfers; negative where they do not fit.

    The swap-out begins right after the last forward use, the swap-in ends right before the first backward use; memory
    is unlimited and no other tensor uses the link.
    """
    between = given.unswapped[given.last[tensor]] - given.unswapped[given.first[tensor] + 1]
    return between - given.out_time[tensor] - given.in_time[tensor]


class _Policy:
    """The choice of tensors, and the in-triggers as feedback moves them."""

    def __init__(self, given: Instance, options: CapuchinSwap) -> None:
        self.given, self.options = given, options
        self.earlier = [0] * len(given.size)
        self.missing = np.array(given.need, dtype=np.int64)

    def best(self, stop: Callable[[], bool]) -> tuple[list[Choice], int] | None:
        """The choices of the fastest measured iteration and its makespan; None where memory never suffices.

        No iteration follows once `stop` answers True.
        """
        issue = self._choose()
        if issue is None:
            return None
        best: tuple[list[Choice], int] | None = None
        for _ in range(self.options.iterations + 1):
            choices = sorted(issue.items(), key=lambda choice: (choice[1], self.given.last[choice[0]]))
            measured = evaluate(self.given, choices)
            assert measured is not None, "each op's need was covered"
            if best is None or measured.makespan < best[1]:
                best = choices, measured.makespan
            if stop() or not self._feed_back(issue, choices, measured):
                break
        return best

    def _choose(self) -> dict[int, int] | None:
        """Swaps by descending free time (then bytes) until every op's need is covered: tensor → op of its in-trigger.

        A tensor that would be back before it saves anything at an op that still lacks memory is passed over, and one
        that the host has no room for.
        """
        given, issue = self.given, dict[int, int]()
        host = HostLoad(given.host, len(given.time))
        order = sorted(range(len(given.size)), key=lambda tensor: (-free_time(given, tensor), -given.size[tensor]))
        for tensor in order:
            if self.missing.max() <= 0:
                break
            trigger = self._in_trigger(tensor)
            if (self.missing[given.first[tensor] + 1 : trigger] > 0).any() and host.fits(tensor):
                issue[tensor] = trigger
                host.add(tensor)
                self.missing[given.first[tensor] + 1 : trigger] -= given.size[tensor]
        return issue if self.missing.max() <= 0 else None

    def _in_trigger(self, tensor: int) -> int:
        """The last op that begins before `use − swap-in time`, less what feedback has learned.

        It is not before the estimated end of the swap-out, and at the latest the use itself.
        """
        given, before = self.given, self.given.unswapped
        first, last = given.first[tensor], given.last[tensor]
        wanted = bisect_right(before, before[last] - given.in_time[tensor] - self.earlier[tensor]) - 1
        away = bisect_left(before, before[first + 1] + given.out_time[tensor])
        return min(max(wanted, away, first + 1), last)

    def _feed_back(self, issue: dict[int, int], choices: list[Choice], measured: Timeline) -> bool:
        """Move the in-trigger of each swap-in that was waited for; False where none was.

        A move that would leave an op without memory is not made: Capuchin would run into an on-demand eviction there.
        """
        waited = False
        for (tensor, old), arrived in zip(choices, measured.in_end, strict=True):
            use = self.given.last[tensor]
            if arrived <= max(measured.ready[use], measured.free[use]):
                continue
            waited = True
            self.earlier[tensor] += max(1, round(self.options.step * self.given.in_time[tensor]))
            new, size = self._in_trigger(tensor), self.given.size[tensor]
            if new < old and self.missing[new:old].max() + size <= 0:
                self.missing[new:old] += size
                issue[tensor] = new
        return waited
