"""`opt`: Lynx-OPT at scale, with a bound that anyone can add up again (README, `opt`).

The bound is the cut relaxation's, certified by the dual vectors of its search tree. The plan of a graph with repeated
layers is a pattern for each layer and a window for what it hides; other graphs are planned by eviction and search.
"""

import math
import time
from dataclasses import dataclass

import msgspec

from solvers.ir.errors import InvalidInput
from solvers.ir.recompute import RecomputeGraphProblem
from solvers.ir.solution import Limits, Watch
from solvers.recompute.graph.answers import Answer, Search, trivial
from solvers.recompute.graph.evict import evictions
from solvers.recompute.graph.opt.bound.cut import CutRelaxation, Shape
from solvers.recompute.graph.opt.bound.shapes import WHOLE, general_shapes, layered_shapes
from solvers.recompute.graph.opt.bound.tree import BoundSearch
from solvers.recompute.graph.opt.layers import find_layers
from solvers.recompute.graph.opt.planning.layered import LayeredPlanner
from solvers.recompute.graph.opt.search.plans import Effort, construct, improve
from solvers.recompute.graph.replay import instance

MOSTLY = 0.4
"""Where repeated layers are a smaller share of the ops (half is a forward pass), a general cut is tried too."""
MOST_LEAVES = 300
"""The most leaves of a certificate."""
FIRST_SHARE, PLAN_SHARE, BOUND_SHARE, POLISH_SHARE, LAST_SHARE = 0.25, 0.35, 0.4, 0.6, 0.9
"""Shares of the time left at each step: choice of the cut, plan, tree of the bound, local search; and a first plan
where there is none yet."""
LATE_S = 0.5
"""How long a quick plan may be looked for behind the limits, where there is none."""
LEAVES, MOVES, FIRST_S = 20, 500, 0.5
"""What one unit of deterministic work allows: leaves of the tree, moves of the local search, seconds for a plan."""


@dataclass(frozen=True)
class Opt:
    """A plan with a certified gap, for graphs of up to a thousand operators and more.

    `engine` solves the linear and integer models (cpsat is refused: it has no duals). The bound is valid for every plan
    of the problem.
    """

    engine: str = "auto"
    NAME = "opt"

    def solve(self, problem: RecomputeGraphProblem, limits: Limits, watch: Watch | None = None) -> Answer:
        """The best plan and the best bound found within the limits; INFEASIBLE only with a proof."""
        if self.engine == "cpsat":
            raise InvalidInput("opt needs dual values, which engine cpsat does not give: choose highs, gurobi or auto")
        search = Search(instance(problem), self.NAME, limits, watch)
        return trivial(search) or _Optimum(search, self.engine).answer()


class _Optimum:
    """One solve: cut, plan, tighten, polish, each as long as it helps."""

    def __init__(self, search: Search, engine: str) -> None:
        self.search, self.engine = search, engine
        self.layers = find_layers(search.given)
        self.bounds: BoundSearch | None = None

    def answer(self) -> Answer:
        search = self.search
        self._choose_cut()
        if self.bounds is not None and (missing := self.bounds.missing_bytes(search.left_s())) > 0:
            least = search.given.budget + missing
            search.engine = self.bounds.engine_used
            return search.infeasible(least, f"no plan fits: the budget must be at least {least} bytes")
        if self.layers is not None and self.bounds is not None and not search.done():
            LayeredPlanner(search, self.layers, self.bounds, self.engine).run(self._time_s(PLAN_SHARE))
        if search.objective is None:
            self._first_plan()
        self._tighten(self._time_s(BOUND_SHARE))
        self._polish(self._time_s(POLISH_SHARE))
        self._tighten(self._time_s(1.0))
        if search.objective is None:
            self._any_plan()
        return self._certified()

    def _time_s(self, share: float) -> float:
        """A share of the time left; all of it where deterministic work is what counts."""
        return self.search.left_s() * (share if self.search.limits.work is None else 1.0)

    # -- the bound

    def _shapes(self) -> list[Shape]:
        given = self.search.given
        if self.layers is None:
            return general_shapes(given)
        repeated = self.layers.size * self.layers.count >= MOSTLY * len(given)
        layered = list(layered_shapes(given, self.layers))
        return layered if repeated and len(given) > WHOLE else [*general_shapes(given), *layered]

    def _choose_cut(self) -> None:
        """The cut with the largest linear bound."""
        deadline = time.perf_counter() + self._time_s(FIRST_SHARE)
        for shape in self._shapes():
            left = deadline - time.perf_counter()
            if left <= 0 or self.search.stopped:
                return
            candidate = BoundSearch(CutRelaxation(self.search.given, shape), self.engine)
            if candidate.root(left) and (self.bounds is None or candidate.bound_us > self.bounds.bound_us):
                self.bounds = candidate
                self._take_bound()

    def _take_bound(self) -> None:
        if self.bounds is not None:
            self.search.raise_bound(self.search.given.base + self.bounds.bound_us)
            self.search.report()

    def _tighten(self, time_s: float) -> None:
        """Branch until the bound meets the plan or the time is over."""
        search = self.search
        if self.bounds is None or search.done():
            return
        given, deadline = search.given, time.perf_counter() + time_s

        def target() -> float:
            if search.objective is None:
                return float("inf")
            return search.objective * (1 - search.limits.gap) - given.base

        def stop() -> bool:
            self._take_bound()
            return search.stopped

        work = search.limits.work
        most = MOST_LEAVES if work is None else min(MOST_LEAVES, 1 + int(LEAVES * work))
        self.bounds.run(target, deadline, most, stop)
        self._take_bound()

    # -- the plan

    def _first_plan(self) -> None:
        search = self.search
        if search.done():
            return
        work, time_s = search.limits.work, self._time_s(LAST_SHARE)
        deadline = time.perf_counter() + (time_s if work is None else min(time_s, FIRST_S * work))
        found = construct(search.given, deadline, search.limits.seed, self._watched)
        if found is not None:
            search.offer(found)

    def _any_plan(self) -> None:
        """Where time is over without a plan, one pass over the stages still finds many."""
        deadline = time.perf_counter() + LATE_S
        for found in evictions(self.search.given, lambda: self.search.stopped or time.perf_counter() > deadline):
            if self.search.offer(found):
                return

    def _polish(self, time_s: float) -> None:
        search = self.search
        if search.runs is None or search.done():
            return
        again = [{i for i in run if i != t} for t, run in enumerate(search.runs)]
        deadline = time.perf_counter() + time_s
        moves = None if search.limits.work is None else int(MOVES * search.limits.work)
        goal = search.bound / (1 - search.limits.gap) if search.limits.gap < 1 else math.inf
        fresh = None if self.layers is None else 0  # a layered plan is better than any fresh one: keep to it
        search.offer(
            improve(search.given, again, Effort(deadline, moves, goal, fresh), search.limits.seed, self._watched)
        )

    def _watched(self, objective: int | None) -> bool:
        self.search.report()
        return self.search.stopped

    def _certified(self) -> Answer:
        search = self.search
        if self.bounds is not None:
            search.engine = self.bounds.engine_used
        solution = search.answer()
        if self.bounds is None or self.bounds.bound_us <= 0:
            return solution
        return msgspec.structs.replace(solution, certificate=self.bounds.certificate())
