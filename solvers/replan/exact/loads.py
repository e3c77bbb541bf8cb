"""Which loads of the busiest node prices exclude, and what bound on all objectives follows (README, proof 7)."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from solvers.replan.estimate.objective import stretched_us
from solvers.replan.exact.questions import Left, Questions

_ASKS = 12
"""Shapes of pipelines that are searched for because prices rest on them."""
_STAGES_A_US = 140
"""Stages of kinds of nodes looked at in a microsecond."""


def bound_by_loads(questions: Questions, least_step_us: int, cleared_bytes: int, bound: int) -> int:
    """The bound once prices have excluded loads of the busiest node.

    No plan's step is shorter than `least_step_us`, and none better than the best has a load below `cleared_bytes`. Of
    the loads that nothing excludes yet any plan needs at least the first; whole pipelines are sought for others.
    """
    incumbent = questions.incumbent
    if incumbent.objective_us is None or incumbent.over() or not questions.possible:
        return bound
    return _Loads(questions, least_step_us, cleared_bytes, bound).run()


class _Loads:
    """Loads rising: all below `low` are excluded, and plans from `high` on are no better than the best known.

    From `unsure` on some were not excluded; of these nothing was found from there to before `tried`.
    """

    def __init__(self, questions: Questions, least_step_us: int, cleared_bytes: int, bound: int) -> None:
        self.questions, self.incumbent, self.market = questions, questions.incumbent, questions.market
        self.least_step_us, self.bound = least_step_us, bound
        if not self.incumbent.on_hosts:
            layers = self.incumbent.problem.layers
            self.incumbent.steps.effort.spend(len(self.market.runs) * layers**2 // _STAGES_A_US)
        self.loads = self.market.loads(self.incumbent.load_below(least_step_us, self.best_us))
        self.low = bisect_left(self.loads, cleared_bytes * self.incumbent.restorer.topology.least_price)
        self.unsure, self.tried, self.high = len(self.loads), self.low, len(self.loads)

    @property
    def best_us(self) -> int:
        """The best objective known."""
        return self.incumbent.objective_us or 0

    def run(self) -> int:
        """Bisect loads, then objectives; the bound that is proven."""
        asks, looked = _ASKS, 0
        while self.questions.left > 0 and not self.incumbent.over() and not self._done():
            middle = (self.low + self.unsure) // 2 if self.low < self.unsure else (self.tried + self.high) // 2
            if (left := self._ask(middle)) is None:
                return self.bound
            self.questions.left -= max(1, len(left))
            objective, between = self.best_us, self.low < middle < self.unsure
            if between and looked != objective and not self.incumbent.on_hosts and self.questions.enough(left):
                looked, middle = objective, self.low  # perhaps the least load will do: then nothing more is asked
                if (left := self._ask(middle)) is None:
                    return self.bound
                left = self.questions.kept(left, self.least_step_us)
                if left and self.best_us == objective:
                    continue
            else:
                wholes = not between or not self.questions.ample(left)
                left = self.questions.kept(left, self.least_step_us, wholes=wholes)
            if not left:
                self._exclude(middle)
                continue
            self.unsure = min(self.unsure, middle)
            if asks and self.best_us == objective and (asked := self.questions.doubt(left, asks)):
                asks -= asked
                self.unsure = min(self.high, middle + 1)
            elif self.best_us < objective:
                self._improved(middle)
            else:
                self.tried = middle + 1
        return self._by_objectives() if self.low < self.high else self.best_us

    def _done(self) -> bool:
        return self.low >= self.unsure and self.tried >= self.high

    def _ask(self, number: int) -> Left | None:
        """What is left with a load; of any step that could be better with the least load not excluded yet."""
        lost = self.incumbent.taken_us(self.loads[self.low])
        return self.questions.ask(self.incumbent.latest_us(lost), self.loads[number])

    def _exclude(self, number: int) -> None:
        """No plan that is better has this load or less."""
        self.low = number + 1
        self.tried, self.unsure = max(self.tried, self.low), max(self.unsure, self.low)
        floor = None
        if self.low < self.high:
            lost = self.incumbent.taken_us(self.loads[self.low])
            floor = stretched_us(self.incumbent.problem, self.least_step_us, lost)
        self.bound = max(self.bound, self.best_us if floor is None else min(floor, self.best_us))

    def _improved(self, number: int) -> None:
        """A better plan was found with this load: what is better still has to be quicker."""
        self.high = bisect_right(self.loads, self.incumbent.load_below(self.least_step_us, self.best_us))
        self.unsure = min(self.high, number + (self.low == number))
        self.bound = min(self.bound, self.best_us)

    def _by_objectives(self) -> int:
        """The bound once prices have excluded slower steps with the loads left as well, objectives bisected."""
        loads, bound, high = self.loads[self.low : self.high], self.bound, self.best_us
        while bound < high and self.questions.left > 0 and not self.incumbent.over():
            middle = (bound + high + 1) // 2
            if self._none_below(middle, loads):
                bound = middle
            else:
                high = min(middle - 1, self.best_us)
        return bound

    def _none_below(self, objective: int, loads: Sequence[int]) -> bool:
        """Whether prices exclude all plans of less than this objective with one of these loads, smaller ones first."""
        for load in loads:
            latest_us = self.incumbent.latest_us(self.incumbent.taken_us(load), objective)
            if latest_us < self.least_step_us:
                break
            left = self.questions.ask(latest_us, load)
            self.questions.left -= 1
            if left is None or self.questions.kept(left, self.least_step_us):
                return False
        return True
