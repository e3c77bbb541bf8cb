"""`greedy-joint`: one pass by price per byte, as the public planners of selective checkpointing with offload do it."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from solvers.ir.joint import JointPlan, JointProblem
from solvers.ir.solution import INTERRUPTED, Call, Limits, Solution, Watch
from solvers.joint.answers import Incumbent, trivial
from solvers.joint.choice import Choice, Prices, closure, fill, keep_all, swap_all
from solvers.joint.draft import kept_of, plan_of
from solvers.joint.evict import evicted
from solvers.joint.given import Given, given_of

GREEDY = 0.6
"""Of the time limit, what the greedy may take: where it finds no plan another one is looked for."""
EVICTED = "the greedy found no plan, or a dearer one: this is the best of a few passes over the step that evict"


@dataclass(frozen=True)
class GreedyJoint:
    """In the fullest stage, what is cheapest per byte leaves or is computed again, until everything fits.

    What takes longest to recompute per byte is swapped for nothing while the link has time; other swaps cost their
    transfers' time, a recomputation its ops' time. FEASIBLE with bound None, as every heuristic.
    """

    NAME = "greedy-joint"

    def solve(self, problem: JointProblem, limits: Limits, watch: Watch | None = None) -> Solution[JointPlan]:
        """A plan in fractions of a second; INFEASIBLE with the least budget where the closed form proves it."""
        call, given = Call(self.NAME, limits), given_of(problem)
        known = trivial(given, call)
        if known is not None:
            return known
        best = Incumbent(given, watch, call.based(given.base_us), bound=-math.inf)
        said = None
        try:
            until = time.perf_counter() + GREEDY * best.call.left_s
            enough = best.limited()
            found = greedy(given, lambda: best.asked() or enough() or time.perf_counter() > until)
            best.offer_choice(found, "greedy")
            if best.draft is None or not all(map(given.host_takes, range(len(given)))):  # eviction recomputes better
                for choice in evicted(given, lambda: best.stopped or (best.draft is not None and best.over())):
                    best.offer_choice(choice, EVICTED)
                said = best.by if best.by == EVICTED else None
        except KeyboardInterrupt:
            said = INTERRUPTED
        if best.draft is None:
            best.watch = None  # it has stopped the greedy, perhaps
            best.offer_choice(swap_all(given), "swap all")
            said = "; ".join(filter(None, ("the greedy found no plan: everything is swapped", said)))
        if best.draft is None or best.objective is None:
            return best.call.unknown("the greedy finds no plan that fits the host too: choose joint")
        return best.call.found(plan_of(given, best.draft), best.objective, reason=said)


def greedy(given: Given, stop: Callable[[], bool] = lambda: False) -> Choice | None:
    """The greedy's choice; None where it finds none, or on `stop`."""
    hidden = Hiding(given, stop).swaps()
    return fill(given, keep_all(given), link_prices(given, hidden), stop)


def hardest(given: Given, peaks: list[int]) -> list[int]:
    """The stages beyond the budget, that first for which the link would need most time that there is not."""
    ends = np.cumsum([0, *given.cost]).tolist()
    over = [t for t in range(len(given)) if peaks[t] > given.budget]
    rate = given.ticks * 1_000_000 / given.link.out_bytes_per_s
    return sorted(over, key=lambda t: ends[t] - rate * (peaks[t] - given.budget)) or [len(given) - 1]


class Hiding:
    """Which swaps the link carries for nothing: out until the hardest stage begins, in from its end to their use."""

    def __init__(self, given: Given, stop: Callable[[], bool] = lambda: False) -> None:
        self.given, choice = given, keep_all(given)
        kept = kept_of(given, choice.again)
        self.ends = np.cumsum([0, *given.cost], dtype=np.int64)
        self.stage = hardest(given, kept.peaks)[0]
        self.excess = kept.peaks[self.stage] - given.budget
        self.last: dict[int, int] = {}
        self.worth: dict[int, float] = {}
        for i in range(self.stage):
            if stop():
                break  # what is left counts as nothing that the link carries for nothing
            gap = kept.gap(i, self.stage) if given.graph.size[i] and given.host_takes(i) else None
            if gap is not None:
                needed = closure(given, choice, kept, i, gap[1], self.stage)
                time = math.inf if needed is None else sum(given.cost[j] for j in needed)
                self.worth[i], self.last[i] = time / given.graph.size[i], gap[1]

    def swaps(self, link: float = 1.0, early: bool = False, enough: bool = True) -> set[int]:
        """Ops whose outputs leave: most time to recompute per byte first, the earlier of equals.

        `early`: the earliest first. `enough`: no more than the fullest stage lacks. `link`: its rate, more or less.
        """
        out = link * (self.ends[self.stage] - self.ends[1 : self.stage + 1])  # time left once op e has ended
        back = link * (self.ends[:-1] - self.ends[self.stage + 1])  # time until stage s begins
        order = sorted((0.0 if early else -worth, i) for i, worth in self.worth.items())
        found, missing = set[int](), self.excess
        for _, i in order:
            if enough and missing <= 0:
                break
            leaves, returns, last = self.given.out_time[i], self.given.in_time[i], self.last[i]
            if out[: i + 1].min() >= leaves and back[last:].min() >= returns:
                out[: i + 1] -= leaves
                back[last:] -= returns
                missing -= self.given.graph.size[i]
                found.add(i)
        return found


def link_prices(given: Given, hidden: set[int]) -> Prices:
    """What is `hidden` costs nothing to swap but the host's launches, all else its transfers' time.

    What the host cannot take even alone cannot be swapped.
    """

    def swap(i: int, first: int, last: int) -> float:
        if not given.host_takes(i):
            return math.inf
        return 2.0 * given.move[i] + (0.0 if i in hidden else max(given.out_time[i], given.in_time[i]))

    return Prices(swap)
