"""Plans for graphs of any shape: a first one within the budget, and local search from there (README, plans)."""

import math
import random
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from solvers.recompute.graph.least import least_budget_bytes
from solvers.recompute.graph.opt.search.anneal import Annealing, Observer, Sets
from solvers.recompute.graph.opt.search.evict import Eviction, run_through
from solvers.recompute.graph.opt.search.fit import COMPARED, anneal_excess, evict_all
from solvers.recompute.graph.opt.search.state import State
from solvers.recompute.graph.replay import Instance, replay, useful

PASSES = tuple(Eviction(cost, wait, spread=0.1) for cost, wait in ((1.0, 1.0), (1.0, 0.5), (0.5, 1.0)))
CAREFUL = tuple(
    Eviction(cost, wait, 1000, spread)
    for spread in (0.2, 0.5)
    for cost, wait in ((1.0, 1.0), (1.0, 0.5), (0.5, 0.5), (1.0, 0.25))
)
"""The passes over the stages: quick ones first, careful ones where those find no plan."""
SQUEEZE, LONGER = 20, 1.5
"""Moves per op of the first annealing towards a valid plan, and the factor by which each next one is longer."""

LONG = 1_500
"""Ops up to which more than the quick passes is tried where rounds are counted."""
ROUND = 5
"""Moves per op of each of many polishings."""


def construct(
    given: Instance, deadline: float, seed: int, watch: Observer | None = None, rounds: int | None = None
) -> Sets | None:
    """A plan within the budget as recomputations by stage, the best of some; None where none was found by then.

    `deadline` is a moment of `time.perf_counter()`; where it is not met, the plan depends on the seed alone. Careful
    constructions end after so many `rounds` (None: with the deadline). Nothing is recomputed where everything fits.
    """
    nothing: Sets = [set() for _ in range(len(given))]
    if replay(given, nothing).violation is None:
        return nothing
    if least_budget_bytes(given) > given.budget:
        return None
    return _Construction(given, deadline, seed, watch).run(rounds)


class _Construction:
    """The best of several constructions; where all fail, annealing from a plan for a larger budget."""

    def __init__(self, given: Instance, deadline: float, seed: int, watch: Observer | None) -> None:
        self.given, self.deadline, self.watch = given, deadline, watch
        self.source = random.Random(seed)
        self.best: Sets | None = None
        self.objective: int | None = None

    def run(self, rounds: int | None) -> Sets | None:
        """All quick constructions; where they fail, careful ones and annealing in turn until there is a plan."""
        for eviction in PASSES:
            if not self._stop():
                self._offer(run_through(self.given, eviction, self.source, self._stop))
        if rounds is not None and len(self.given) > LONG:
            return self.best  # what follows takes minutes there, and no round is short
        for compared in COMPARED:
            if not self._greedy(compared):
                break
        count, number = float(SQUEEZE * len(self.given)), 0
        while self.best is None and not self._stop() and number != rounds:
            self._offer(run_through(self.given, CAREFUL[number % len(CAREFUL)], self.source, self._stop))
            if self.best is None:
                self._squeeze(int(count))
            count, number = count * LONGER, number + 1
        return self.best

    def _stop(self) -> bool:
        return time.perf_counter() >= self.deadline or (self.watch is not None and self.watch(self.objective))

    def _greedy(self, compared: int) -> bool:
        """Evict until all fits; False where that fails."""
        state = State(self.given, [()] * len(self.given))
        if self._stop() or not evict_all(state, self.source, compared, self._stop):
            return False
        self._offer(state.recomputed())
        return True

    def _squeeze(self, count: int) -> None:
        """Anneal the excess of a plan that a larger budget allows."""
        more = 1 + self.given.budget // 64
        while not self._stop():
            roomy = replace(self.given, budget=self.given.budget + more)
            found = run_through(roomy, self.source.choice(PASSES), self.source, self._stop)
            if found is not None:
                state = State(self.given, found)
                if anneal_excess(state, self.source, count, self._stop):
                    self._offer(state.recomputed())
                return
            more *= 2

    def _offer(self, recomputed: Sequence[Collection[int]] | None) -> None:
        if recomputed is None:
            return
        plan = useful(self.given, recomputed)
        found = replay(self.given, plan)
        if found.violation is None and (self.objective is None or found.objective_us < self.objective):
            self.best, self.objective = plan, found.objective_us


@dataclass(frozen=True)
class Effort:
    """How long to search: until `deadline` (of `time.perf_counter`), so many moves, or the objective `goal` in µs.

    `starts` fresh plans take part of the time (None: as many as fit in; 0 only polishes).
    """

    deadline: float
    moves: int | None = None
    goal: float = -math.inf
    starts: int | None = None


def improve(
    given: Instance,
    recomputed: Sequence[Collection[int]],
    effort: Effort,
    seed: int,
    watch: Observer | None = None,
) -> Sets:
    """A valid plan made cheaper by simulated annealing.

    The answer is valid and never worse than what was given; with `moves` it depends on the seed alone, as far as the
    deadline is not met before.
    """
    start = useful(given, recomputed)
    search = Annealing(given, start, effort.deadline, seed, watch, effort.moves)
    search.run(effort.goal - given.base, effort.starts)
    found, before = replay(given, search.best), replay(given, start)
    return search.best if found.violation is None and found.objective_us <= before.objective_us else start


def improve_often(
    given: Instance,
    starts: Sequence[Sequence[Collection[int]]],
    effort: Effort,
    seed: int,
    watch: Observer | None = None,
) -> Sets:
    """The best of many short polishings, each with a seed of its own, from each start and from the best so far in turn.

    Where layers repeat a short search ends in one of few valleys, and the next one mostly in another; a long one stays.
    """
    best = min((useful(given, start) for start in starts), key=lambda plan: replay(given, plan).objective_us)
    cost, number, each = replay(given, best).objective_us, 0, ROUND * len(given)
    left = math.inf if effort.moves is None else effort.moves
    while left > 0 and cost > effort.goal and time.perf_counter() < effort.deadline:
        if watch is not None and watch(cost):
            break
        turn = number % (len(starts) + 1)
        start = best if turn == len(starts) else starts[turn]
        some = replace(effort, moves=int(min(each, left)), starts=0)
        found = improve(given, start, some, seed + number, watch)
        reached = replay(given, found).objective_us
        if reached < cost:
            best, cost = found, reached
        left, number = left - each, number + 1
    return best
