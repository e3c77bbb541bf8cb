"""Simulated annealing of plans with incremental memory: short searches from fresh plans, then a long one."""

import math
import random
import time
from collections.abc import Callable

from solvers.recompute.graph.opt.search.blocks import evict_block, fill, hide, ruin
from solvers.recompute.graph.opt.search.fit import COMPARED, evict_all
from solvers.recompute.graph.opt.search.moves import Moves
from solvers.recompute.graph.opt.search.state import State
from solvers.recompute.graph.replay import Instance

Observer = Callable[[int | None], bool]
"""Sees the best objective so far in microseconds (None: no plan yet); True stops the search."""
Sets = list[set[int]]

HEAT, POLISH = 1.5, 0.2
"""First temperature of the annealing, in mean times of a recomputed op: of a search, and of polishing alone."""
CYCLES, COOLER = 2, 0.3
"""Cycles of the long search from the best plan, and the temperature of each as a share of the one before."""
FRESH_SHARE, FRESH_MOST, FRESH_S, FRESH_MOVES = 0.4, 8, 0.003, 20
"""Fresh starts: share of the limits, largest number, seconds per op and moves per op of each."""
SHAKES = 30
"""Moves at any cost that make a fresh plan of the best one."""
BLOCKS, EVICTIONS, HIDES, SHIFTS, RUINS = 0.1, 0.2, 0.35, 0.6, 0.65
"""Moves by kind, cumulated; the others keep an output instead of computing it again."""
EVEN = 0.4
"""How often a recomputation is drawn evenly; else the longer of two."""
REPAIRS = 12
"""Evictions at most that make room for one output that is kept."""
LOOK = 64
"""Moves between two calls of the observer."""


class Annealing:
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
        heat = POLISH if starts == 0 else HEAT
        first, cycle = self.done, 0
        while cycle < CYCLES and self.done < 1.0:
            self._begin(self.best)
            self._anneal(first + (1 - first) * (cycle + 1) / CYCLES, heat * COOLER**cycle, goal)
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
            self.done = spent if self.most is None or spent >= 1.0 else self.count / max(1, self.most)
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
        moves, state, kind = self.moves, self.state, self.source.random()
        if kind < BLOCKS:
            if not (evict_block(moves, self.source.randrange(len(self.given))) and moves.repair(REPAIRS)):
                return False
            fill(moves)
            return state.cost <= dearest
        if kind < EVICTIONS:
            return moves.evict(self.source.randrange(len(self.given))) and moves.repair(REPAIRS, dearest)
        run = self._run(paid=kind < HIDES)
        return run is not None and self._move_run(*run, kind, dearest)

    def _move_run(self, t: int, v: int, kind: float, dearest: float) -> bool:
        moves = self.moves
        if kind < HIDES:
            return hide(moves, t, v) and moves.repair(REPAIRS, dearest)
        if kind < SHIFTS:
            return moves.shift(t, v) and moves.repair(REPAIRS, dearest)
        if kind < RUINS:
            ruin(moves, t, v)
            return moves.repair(2 * REPAIRS, dearest)
        self.state.remove(t, v)
        return moves.repair(REPAIRS, dearest, spared=v)

    def _run(self, paid: bool) -> tuple[int, int] | None:
        """A random recomputation, more often a long one; `paid`: not one behind a communication."""
        again, time_us, comm, count = self.state.again, self.given.time, self.given.comm, len(self.given)
        best: tuple[int, int] | None = None
        for _ in range(count):
            t = int(self.source.random() * count)
            if not again[t] or (paid and comm[t]):
                continue
            v = self.source.choice(sorted(again[t]))
            if best is not None:
                return (t, v) if time_us[v] > time_us[best[1]] else best
            best = t, v
            if self.source.random() < EVEN:
                break
        return best
