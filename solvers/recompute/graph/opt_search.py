"""Plans for graphs of any shape: a first one within the budget, and local search from there (README, plans)."""

import math
import random
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from solvers.recompute.graph.least import least_budget_bytes
from solvers.recompute.graph.opt_evict import Eviction, run_through
from solvers.recompute.graph.opt_search_blocks import evict_block, fill, ruin
from solvers.recompute.graph.opt_search_fit import anneal_excess, evict_all
from solvers.recompute.graph.opt_search_moves import Moves
from solvers.recompute.graph.opt_search_state import State
from solvers.recompute.graph.replay import Instance, replay, useful

Observer = Callable[[int | None], bool]
"""Sees the best objective so far in microseconds (None: no plan yet); True stops the search."""
Sets = list[set[int]]

PASSES = (Eviction(1.0, 1.0), Eviction(1.0, 0.5), Eviction(0.5, 1.0))
CAREFUL = tuple(Eviction(cost, wait, 128, 400) for cost, wait in ((1.0, 1.0), (1.0, 0.5), (0.5, 0.5), (1.0, 0.25)))
"""The passes over the stages: quick ones first, careful ones where those find no plan."""
COMPARED = (6, 30, 12, 30)
"""So many outputs compete for each eviction in the greedy constructions."""
FIRST_S = 1.0
"""Once there is a plan, no further construction begins after so many seconds."""
LONGER = 1.5
"""Each annealing towards a first plan takes so many times as long as the one before."""
HEAT = 1.0
"""The first temperature of the annealing, in mean times of a recomputed op."""
CYCLES, COOLER = 2, 0.3
"""The long search starts so often from the best plan, each time at this share of the temperature."""
FRESH_SHARE, FRESH_MOST, FRESH_S, FRESH_MOVES = 0.4, 8, 0.003, 20
"""Fresh plans get this share of the limits; they are at most so many, each with so many seconds and moves an op."""
SHAKES = 30
"""Moves at any cost that make a fresh plan of the best one."""
BLOCKS, EVICTIONS, SHIFTS, RUINS = 0.1, 0.2, 0.5, 0.55
"""Moves by kind, cumulated; the others keep an output instead of computing it again."""
EVEN = 0.4
"""How often a recomputation is drawn evenly; else the longer of two."""
REPAIRS = 12
"""Evictions at most that make room for one output that is kept."""
LOOK = 64
"""The observer is asked every so many moves."""


def construct(given: Instance, deadline: float, seed: int, watch: Observer | None = None) -> Sets | None:
    """A plan within the budget as recomputations by stage, the best of some; None where none was found by then.

    `deadline` is a moment of `time.perf_counter()`. Nothing is recomputed where everything fits.
    """
    nothing: Sets = [set() for _ in range(len(given))]
    if replay(given, nothing).violation is None:
        return nothing
    if least_budget_bytes(given) > given.budget:
        return None
    return _Construction(given, deadline, seed, watch).run()


class _Construction:
    """The best of several constructions; where all fail, annealing from a plan for a larger budget."""

    def __init__(self, given: Instance, deadline: float, seed: int, watch: Observer | None) -> None:
        self.given, self.deadline, self.watch = given, deadline, watch
        self.source = random.Random(seed)
        self.began = time.perf_counter()
        self.best: Sets | None = None
        self.objective: int | None = None

    def run(self) -> Sets | None:
        for number, compared in enumerate(COMPARED):
            self._greedy(compared)
            if number < len(PASSES) and not self._over():
                self._offer(run_through(self.given, PASSES[number], self.source, self._stop))
        share, number = len(self.given) * FRESH_S, 0
        while self.best is None and not self._stop():
            self._offer(run_through(self.given, CAREFUL[number % len(CAREFUL)], self.source, self._stop))
            if self.best is None:
                self._squeeze(min(self.deadline, time.perf_counter() + share))
            share, number = share * LONGER, number + 1
        return self.best

    def _stop(self) -> bool:
        return time.perf_counter() >= self.deadline or (self.watch is not None and self.watch(self.objective))

    def _over(self) -> bool:
        late = self.best is not None and time.perf_counter() - self.began > FIRST_S
        return late or self._stop()

    def _greedy(self, compared: int) -> None:
        if not self._over():
            state = State(self.given, [()] * len(self.given))
            if evict_all(state, self.source, compared, self._over):
                self._offer(state.recomputed())

    def _squeeze(self, until: float) -> None:
        """Anneal the excess of a plan that a larger budget allows."""
        more = 1 + self.given.budget // 64
        while not self._stop():
            roomy = replace(self.given, budget=self.given.budget + more)
            found = run_through(roomy, self.source.choice(PASSES), self.source, self._stop)
            if found is not None:
                state = State(self.given, found)
                if anneal_excess(state, self.source, until, self._stop):
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


def improve(
    given: Instance,
    recomputed: Sequence[Collection[int]],
    deadline: float,
    seed: int,
    watch: Observer | None = None,
    moves: int | None = None,
    goal: float = -math.inf,
    starts: int | None = None,
) -> Sets:
    """A valid plan made cheaper by simulated annealing until the deadline, so many moves, or the objective `goal`.

    The answer is valid and never worse than what was given; with `moves` it depends on the seed alone, as far as the
    deadline is not met before. `starts` fresh plans take part of the time (None: as many as fit in; 0 only polishes).
    """
    start = useful(given, recomputed)
    search = _Annealing(given, start, deadline, seed, watch, moves)
    search.run(goal - given.base, starts)
    found, before = replay(given, search.best), replay(given, start)
    return search.best if found.violation is None and found.objective_us <= before.objective_us else start


class _Annealing:
    """One search; `best` is its cheapest plan, `cost` what that adds to the base, `done` its share of the limits."""

    def __init__(
        self, given: Instance, start: Sets, deadline: float, seed: int, watch: Observer | None, moves: int | None
    ) -> None:
        self.given, self.deadline, self.watch, self.most = given, deadline, watch, moves
        self.source = random.Random(seed)
        self._begin(start)
        self.best, self.cost = start, self.state.cost
        self.began = time.perf_counter()
        self.count, self.done = 0, 0.0

    def run(self, goal: float, starts: int | None) -> None:
        """Short searches from fresh plans first, then a long one from the best of them."""
        rounds = self._rounds() if starts is None else starts
        for number in range(rounds):
            self._anneal(FRESH_SHARE * (number + 1) / rounds, HEAT, goal)
            if number + 1 < rounds and self.done < 1.0:
                self._begin(self._fresh())
        first, cycle = self.done, 0
        while cycle < CYCLES and self.done < 1.0:
            self._begin(self.best)
            self._anneal(first + (1 - first) * (cycle + 1) / CYCLES, HEAT * COOLER**cycle, goal)
            cycle += 1

    def _rounds(self) -> int:
        """How many fresh plans there is time for."""
        limit = (self.deadline - self.began) / FRESH_S if self.most is None else self.most / FRESH_MOVES
        return min(FRESH_MOST, max(0, int(FRESH_SHARE * limit / len(self.given))))

    def _begin(self, plan: Sets) -> None:
        self.state = State(self.given, plan)
        self.moves = Moves(self.state, self.source)

    def _fresh(self) -> Sets:
        """A greedy plan; where that fails, the best one after many moves at any cost."""
        state = State(self.given, [()] * len(self.given))
        if evict_all(state, self.source, self.source.choice(COMPARED), lambda: time.perf_counter() > self.deadline):
            return state.recomputed()
        self._begin(self.best)
        for _ in range(SHAKES):
            if self._move(math.inf):
                self.state.commit()
            else:
                self.state.undo()
        return self.state.recomputed()

    def _anneal(self, until: float, heat: float, goal: float) -> None:
        """Simulated annealing until this share of the limits is used."""
        runs = sum(len(run) for run in self.state.again)
        hottest, first = heat * self.state.cost / max(1, runs), self.done
        while self.cost > max(0, goal) and self._progress() < until:
            self._step(hottest * ((until - self.done) / (until - first)) ** 2)

    def _progress(self) -> float:
        """The share of the limits that is used, after one move more; infinite once the observer has said stop."""
        if self.done < 1.0:
            self.count += 1
            spent = (time.perf_counter() - self.began) / max(1e-9, self.deadline - self.began)
            self.done = spent if self.most is None or spent >= 1.0 else self.count / self.most
            if self.count % LOOK == 1 and self.watch is not None and self.watch(self.given.base + self.cost):
                self.done = math.inf
        return self.done

    def _step(self, temperature: float) -> None:
        """One move, taken where it costs no more than what this temperature allows it."""
        state = self.state
        allowed = -math.log(1.0 - self.source.random()) * temperature
        if not self._move(state.cost + allowed):
            state.undo()
            return
        state.commit()
        if state.cost < self.cost:
            self.cost, self.best = state.cost, state.recomputed()

    def _move(self, dearest: float) -> bool:
        """Some change; False where it ends above the budget or dearer than `dearest`."""
        source, moves, state = self.source, self.moves, self.state
        kind = source.random()
        if kind < BLOCKS:
            if not (evict_block(moves, source.randrange(len(self.given))) and moves.repair(REPAIRS)):
                return False
            fill(moves)
            return state.cost <= dearest
        if kind < EVICTIONS:
            return moves.evict(source.randrange(len(self.given))) and moves.repair(REPAIRS, dearest)
        run = self._run()
        if run is None:
            return False
        t, v = run
        if kind < SHIFTS:
            return moves.shift(t, v) and moves.repair(REPAIRS, dearest)
        if kind < RUINS:
            ruin(moves, t, v)
            return moves.repair(2 * REPAIRS, dearest)
        state.remove(t, v)
        return moves.repair(REPAIRS, dearest, spared=v)

    def _run(self) -> tuple[int, int] | None:
        """A random recomputation, more often a long one."""
        again, time_us, count = self.state.again, self.given.time, len(self.given)
        best: tuple[int, int] | None = None
        for _ in range(count):
            t = int(self.source.random() * count)
            if not again[t]:
                continue
            v = self.source.choice(sorted(again[t]))
            if best is not None:
                return (t, v) if time_us[v] > time_us[best[1]] else best
            best = t, v
            if self.source.random() < EVEN:
                break
        return best
