"""`opt`: Lynx-OPT at scale, with a bound that anyone can add up again (README, `opt`).

The bound is the cut relaxation's, certified by the dual vectors of its search tree. The plan of a graph with repeated
layers is a pattern for each layer and a window for what it hides; other graphs are planned by eviction and search. The
room's other solvers are members: they go on from the best plan and bound so far, each for a share of the limits.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from solvers.ir.errors import InvalidInput
from solvers.ir.recompute import RecomputeGraphProblem
from solvers.ir.solution import INTERRUPTED, Limits, Watch
from solvers.recompute.graph.answers import Answer, Search, any_plan, no_plan, trivial
from solvers.recompute.graph.opt import members
from solvers.recompute.graph.opt.bound.cut import CutRelaxation, Shape
from solvers.recompute.graph.opt.bound.shapes import WHOLE, general_shapes, layered_shapes
from solvers.recompute.graph.opt.bound.tree import BoundSearch
from solvers.recompute.graph.opt.layers import Layers, find_layers
from solvers.recompute.graph.opt.planning.layered import LayeredPlanner
from solvers.recompute.graph.opt.search.plans import Effort, construct, improve, improve_often
from solvers.recompute.graph.opt.unit import in_us, shortest, watch_in_us
from solvers.recompute.graph.replay import instance
from solvers.recompute.graph.stages import column_count

MOSTLY = 0.4
"""Where repeated layers are a smaller share of the ops (half is a forward pass), a general cut is tried too."""
MOST_LEAVES = 300
"""The most leaves of a certificate."""
CERTIFYING = 0.3
"""Of what is left at the end, the share in which a certificate is looked for."""
PATIENCE = 30
"""Leaves without a better bound after which plans have their turn."""
SEEDS = 100_003
"""How far the seeds of one polishing lie from those of the next."""
LEAVES, MOVES, CUTS, ROUNDS = 20, 20_000, 8, 4
"""What one unit of deterministic work allows: leaves of the tree, moves of the local search, cuts tried, and rounds of
careful constructions of a first plan."""
LONG = 100
"""The most operators of a layer of which work does not count the cuts: those of longer ones take seconds each."""


@dataclass(frozen=True)
class Opt:
    """A plan with a certified gap, for graphs of up to a thousand operators and more.

    `engine` solves the linear and integer models (cpsat is refused: it has no duals). The bound is valid for every plan
    of the problem; the certificate proves it, or the part of it that `reason` names.
    """

    engine: str = "auto"
    NAME = "opt"

    def solve(self, problem: RecomputeGraphProblem, limits: Limits, watch: Watch | None = None) -> Answer:
        """The best plan and the best bound found within the limits; INFEASIBLE only with a proof."""
        if self.engine == "cpsat":
            raise InvalidInput("opt needs dual values, which engine cpsat does not give: choose highs, gurobi or auto")
        short, factor = shortest(problem)
        search = Search(instance(short), self.NAME, limits, watch_in_us(watch, factor))
        return in_us(trivial(search) or self._answer(_Optimum(search, self.engine, factor)), factor)

    def _answer(self, optimum: "_Optimum") -> Answer:
        """All parts; on Ctrl-C what is known by then."""
        try:
            return optimum.answer()
        except KeyboardInterrupt:
            optimum.search.stopped = True
            optimum.search.notes.append(INTERRUPTED)
            return optimum.certified()


class _Optimum:
    """One solve: cut, plan, tighten, polish, and the other solvers, each as long as it helps.

    `factor` is the unit of the search's times, in µs.
    """

    def __init__(self, search: Search, engine: str, factor: int) -> None:
        self.search, self.engine, self.factor = search, engine, factor
        self.layers = find_layers(search.given)
        self.columns = column_count(search.given)
        self.bounds: BoundSearch | None = None
        self.impossible: Answer | None = None
        self.starts: list[list[set[int]]] = []
        self.polished = 0
        self.reserve: int | None = None

    def answer(self) -> Answer:
        """Every part in turn until one proves the end."""
        any_plan(self.search)
        parts = self._tiny if self.columns < members.TINY else self._general if self._irregular else self._layered
        parts()
        if self.impossible is not None:
            return self.impossible
        if not self.search.stopped and self.search.left_s() > 0:
            with self.search.share(CERTIFYING):
                self._tighten()  # what an engine proved may have a certificate, too
        return self.certified()

    @property
    def _irregular(self) -> bool:
        return self.layers is None or not self._mostly(self.layers)

    def _mostly(self, layers: Layers) -> bool:
        return layers.size * layers.count >= MOSTLY * len(self.search.given)

    def _tiny(self) -> None:
        """Few columns: the whole model mostly ends it; the cut is for its certificate."""
        self._share(0.2, members.quick, self.search)
        self._share(0.2, self._choose_cut)
        self._share(0.5, self._whole)
        self._share(0.3, self._tighten)
        self._share(0.5, self._first_plan)
        self._share(0.3, members.intervals, self.search)
        self._share(0.5, self._polish)
        self._share(1.0, self._whole)

    def _general(self) -> None:
        """Graphs without repeated layers: intervals have most of the time."""
        self._share(0.1, members.quick, self.search)
        self._share(0.1, self._choose_cut)
        self._share(0.1, self._first_plan)
        if self.columns < members.SMALL:
            self._share(0.4, self._whole)
        self._share(0.5, self._first_plan)
        self._share(0.15, self._polish)
        self._share(0.75, members.intervals, self.search)
        if members.SMALL <= self.columns < members.LARGE and self.search.limits.work is None:
            self._share(0.3, self._whole)
        self._share(0.4, self._tighten)
        self._share(1.0, self._polish)

    def _layered(self) -> None:
        """Repeated layers: patterns first."""
        self.reserve = self.search.objective
        self._share(0.25, self._choose_cut)
        self._share(0.6, self._patterns)
        self._share(0.3, self._first_plan)
        if self.columns < members.SMALL:
            self._share(0.4, self._whole)
        self._share(0.5, self._first_plan)
        self._share(0.2, self._tighten, PATIENCE)
        self._share(0.5, self._polish)
        if len(self.search.given) <= members.LAYERED:
            self._share(0.4, members.intervals, self.search)
        self._share(0.7, self._polish)
        self._share(1.0, self._tighten)

    def _share(self, part: float, run: Callable[..., None], *given: object) -> None:
        """One part within its share of what is left, unless there is nothing left to do."""
        if self.impossible is not None or self.search.done():
            return
        with self.search.share(part):
            run(*given)

    # -- the bound

    def _shapes(self) -> list[Shape]:
        given = self.search.given
        if self.layers is None:
            return general_shapes(given)
        layered = list(layered_shapes(given, self.layers))
        both = [*general_shapes(given), *layered]
        return layered if self._mostly(self.layers) and len(given) > WHOLE else both

    def _choose_cut(self) -> None:
        """The cut with the largest linear bound."""
        search, work, shapes = self.search, self.search.limits.work, self._shapes()
        few = self._irregular or (self.layers is not None and self.layers.size > LONG)
        for shape in shapes[: 1 + int(CUTS * work)] if few and work is not None else shapes:
            left = search.left_s()
            if left <= 0 or search.stopped:
                break
            candidate = BoundSearch(CutRelaxation(search.given, shape), self.engine)
            better = candidate.root(left) and (self.bounds is None or candidate.bound_us > self.bounds.bound_us)
            if candidate.interrupted:
                search.stopped = True
            if better:
                self.bounds = candidate
                self._take_bound()
        if self.bounds is not None and search.objective is None:
            missing = self.bounds.missing_bytes(search.left_s())
            if missing > 0:
                least = search.given.budget + missing
                search.engine = self.bounds.engine_used
                self.impossible = search.infeasible(least, f"no plan fits: the budget must be at least {least} bytes")

    def _take_bound(self) -> None:
        if self.bounds is not None:
            self.search.raise_bound(self.search.given.base + self.bounds.bound_us)
            self.search.report()

    def _tighten(self, patience: float = math.inf) -> None:
        """Branch until the bound meets the plan, the time is over, or it has not grown for `patience` leaves."""
        search = self.search
        if self.bounds is None:  # its share was too short for any cut
            self._choose_cut()
        if self.bounds is None or self.impossible or search.stopped or search.left_s() <= 0:
            return
        given, deadline = search.given, time.perf_counter() + search.left_s()

        def target() -> float:
            if search.objective is None:
                return float("inf")
            return search.objective * (1 - search.limits.gap) - given.base

        def stop() -> bool:
            self._take_bound()
            search.stopped = search.stopped or (self.bounds is not None and self.bounds.interrupted)
            return search.stopped

        work = search.limits.work
        most = MOST_LEAVES if work is None else min(MOST_LEAVES, self.bounds.leaves + int(LEAVES * work))
        self.bounds.run(target, deadline, most, stop, patience)
        stop()

    # -- the plan

    def _whole(self) -> None:
        if members.whole(self.search, self.engine):
            self.impossible = no_plan(self.search)

    def _patterns(self) -> None:
        if self.layers is not None and self.bounds is not None:
            planner = LayeredPlanner(self.search, self.layers, self.bounds, self.engine)
            planner.run(self.search.left_s())
            self.starts = [plan for _, plan in planner.starts]

    def _first_plan(self) -> None:
        search = self.search
        if search.objective not in (None, self.reserve):
            return
        work = search.limits.work
        rounds = None if work is None else 1 + int(ROUNDS * work)
        deadline = time.perf_counter() + search.left_s()
        found = construct(search.given, deadline, search.limits.seed, self._watched, rounds)
        if found is not None:
            search.offer(found)

    def _polish(self) -> None:
        search = self.search
        if search.runs is None:
            return
        again = [{i for i in run if i != t} for t, run in enumerate(search.runs)]
        deadline = time.perf_counter() + search.left_s()
        moves = None if search.limits.work is None else int(MOVES * search.limits.work)
        goal = search.bound / (1 - search.limits.gap) if search.limits.gap < 1 else math.inf
        seed, self.polished = search.limits.seed + SEEDS * self.polished, self.polished + 1
        if self._irregular:
            search.offer(improve(search.given, again, Effort(deadline, moves, goal), search.limits.seed, self._watched))
        else:  # a layered plan is better than any fresh one: keep to it
            starts = [again, *self.starts]
            search.offer(improve_often(search.given, starts, Effort(deadline, moves, goal), seed, self._watched))

    def _watched(self, objective: int | None) -> bool:
        self.search.report()
        return self.search.stopped

    def certified(self) -> Answer:
        """The answer claims what its certificate proves; what an engine knows beyond that stands in `reason`."""
        search, bounds = self.search, self.bounds
        proved = search.given.base + (0 if bounds is None else bounds.bound_us)
        used = [name for name in (None if bounds is None else bounds.engine_used, search.engine) if name is not None]
        search.engine = ", ".join(dict.fromkeys(used)) or None
        if search.bound > proved:
            known = search.bound
            optimal = ", so that it is optimal" if known == search.objective else ""
            least = f"no plan takes less than {known * self.factor} us{optimal}"
            search.notes.append(f"an engine says, and no certificate shows, that {least}")
            search.bound = proved
        solution = search.answer()
        if bounds is None or bounds.bound_us <= 0:
            return solution
        return msgspec.structs.replace(solution, certificate=bounds.certificate())
