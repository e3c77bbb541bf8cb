"""What all solvers of this room answer alike: the closed forms, and the best draft so far."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from solvers.ir.joint import JointPlan
from solvers.ir.solution import Call, Solution, Watch
from solvers.joint.behind import behind
from solvers.joint.choice import Choice, keep_all
from solvers.joint.draft import Draft, measure, plan_of
from solvers.joint.given import Given, least_budget_bytes
from solvers.joint.swaps import timed

LONG, LOOKS = 1_500, 10_000_000
"""Ops from which on a step is long; of one, ops that a heuristic may look at for a unit of deterministic work."""
KEPT = 4
"""How many drafts are kept to begin a search from."""


def trivial(given: Given, call: Call) -> Solution[JointPlan] | None:
    """The answers that need no search: an op that fits beside nothing, or everything kept fits."""
    least = least_budget_bytes(given.problem)
    if least > given.budget:
        label = "exactly" if given.host is None else "at least"
        return call.infeasible(
            f"the most demanding op and its inputs need {label} {least} bytes, the budget is {given.budget}: raise it",
            engine="closed form",
            least_budget_bytes=least,
        )
    draft = Draft(keep_all(given).again)
    if measure(given, draft).violation is None:
        return call.based(given.base_us).found(
            plan_of(given, draft), given.base_us, float(given.base_us), engine="closed form"
        )
    return None


@dataclass
class Incumbent:
    """The best valid draft so far, and who found it; `pool`: the `KEPT` best of different lengths, by objective."""

    given: Given
    watch: Watch | None
    call: Call
    draft: Draft | None = None
    objective: int | None = None
    bound: float = 0.0
    by: str = ""
    stopped: bool = False
    offered: dict[str, int] = field(default_factory=dict)
    pool: dict[int, Draft] = field(default_factory=dict)

    def offer(self, draft: Draft, by: str) -> bool:
        """Take a draft if it is valid and better than the best; whether it was."""
        found = measure(self.given, draft)
        if found.violation is not None:
            return False
        self.offered[by] = min(found.objective_us, self.offered.get(by, found.objective_us))
        self._pooled(draft, found.objective_us)
        if self.objective is not None and found.objective_us >= self.objective:
            return False
        self.draft, self.objective, self.by = draft, found.objective_us, by
        self.report()
        return True

    def _pooled(self, draft: Draft, objective: int) -> None:
        self.pool.setdefault(objective, draft)
        if len(self.pool) > KEPT:
            del self.pool[max(self.pool)]

    def offer_choice(self, choice: Choice | None, by: str) -> bool:
        """Time a choice and take it if it is the best; out of time, its swap-ins are issued at their use."""
        return choice is not None and self.offer(timed(self.given, choice, quick=self.over())[0], by)

    def offer_hidden(self, choice: Choice | None, by: str) -> bool:
        """The same, and with what communication can hide of it, as far as there is time."""
        better = self.offer_choice(choice, by)
        for moved in () if choice is None or self.over() else behind(self.given, choice, self.over):
            better = self.offer_choice(moved, by) or better
        return better

    def report(self) -> None:
        """Tell whoever watches; a True of theirs ends the search."""
        bound = self.bound if self.bound > -math.inf else None
        if self.watch is not None and self.watch(self.objective, bound, self.call.elapsed_s):
            self.stopped = True

    def limited(self) -> Callable[[], bool]:
        """`over`, and in a long step after so much of the work; heuristics ask it for each op that they look at."""
        work, looks = self.call.limits.work, itertools.count()
        most = math.inf if work is None or len(self.given) <= LONG else LOOKS * work
        return lambda: self.over() or next(looks) > most

    def asked(self) -> bool:
        """`over`, after whoever watches was asked."""
        self.report()
        return self.over()

    def over(self) -> bool:
        """Whether to stop: told to, out of time, or the bound is met."""
        if self.stopped or self.call.left_s <= 0:
            return True
        return self.objective is not None and self.objective - self.bound <= self.call.limits.gap * self.objective
