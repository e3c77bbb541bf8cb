"""`milp-swap`: near-optimal swap plans with a proven bound, exact on small instances.

One file: all phases read and raise the same incumbent and bound.
"""

import math
import time
from dataclasses import dataclass

from solvers.engines import Answer, LinearModel, solve
from solvers.ir.solution import INTERRUPTED, Call, Limits, Solution, Watch
from solvers.ir.swap import SwapPlan, SwapProblem
from solvers.swap.answers import feasible, trivial, whatever_fits
from solvers.swap.discrete import discrete
from solvers.swap.evaluate import Instance, choices_of, instance, memory_waits
from solvers.swap.exact import exact, largest_number
from solvers.swap.floor import floor_ticks
from solvers.swap.greedy import GreedySwap
from solvers.swap.polish import Incumbent, offer_orders, polish, round_selection
from solvers.swap.relaxation import POINTS, fluid, span

SLACK = 1e-6
"""The relative tolerance of the float engines' integer searches."""
EXACT_FLOATS = 2**53
"""Model X is not built where its coefficients would lie beyond: floats hold no larger integers exactly."""
NO_RELAXATION = (
    "CP-SAT cannot solve the relaxation, whose flows are fractional, so the plan is annealed, the bound is the closed "
    "form: use highs or gurobi for a better bound"
)
LEVELS = (128, 1024)
"""The ops with rows of their own in coarse relaxations, which come before the whole one where that is much larger."""
MUCH_LARGER = 2
TIGHTENINGS, WAITS = 3, 8
"""The most times that model D is built; it is built again while one of the first WAITS watched ops is new."""
POLISH_ROUNDS = 1000
"""Rounds of local search a unit of `work`."""
SMALL_ROUNDS = 500
"""Rounds at most where the exact model comes next: it needs a fair plan, not the best one."""


@dataclass(frozen=True)
class MilpSwap:
    """Selection and timing by a fluid relaxation, rounding and local search; small instances by an exact model.

    The bound is the relaxation's (valid for every plan, README models F and D) or the exact model's. `engine` is
    `highs`, `gurobi`, `cpsat` or `auto` (HiGHS for the relaxations, CP-SAT for the exact model; CP-SAT cannot solve the
    relaxations, so with it large instances carry no bound beyond the base). Instances of at most `exact_tensors`
    tensors and `exact_ops` ops go to the exact model, others of at most `whole_tensors` to model D, which tightens the
    bound.
    `start` is a plan of this problem to begin from: where valid, the answer is never worse; `InvalidProblem`
    where it is another problem's.
    """

    engine: str = "auto"
    exact_tensors: int = 24
    exact_ops: int = 64
    whole_tensors: int = 200
    start: SwapPlan | None = None
    NAME = "milp-swap"

    def solve(self, problem: SwapProblem, limits: Limits, watch: Watch | None = None) -> Solution[SwapPlan]:
        """The best plan found and a valid bound; INFEASIBLE with the least budget where no plan exists."""
        call = Call(self.NAME, limits)
        given = instance(problem)
        known = trivial(problem, given, call)
        return known if known is not None else _Search(self, problem, given, watch, call).run()


class _Search:
    """One solve: incumbents first, then the bound, then whatever closes the gap."""

    def __init__(
        self,
        options: MilpSwap,
        problem: SwapProblem,
        given: Instance,
        watch: Watch | None,
        call: Call,
    ) -> None:
        self.options, self.problem, self.given = options, problem, given
        self.limits, self.watch, self.call = call.limits, watch, call
        self.best = Incumbent(given)
        self.bound = given.base
        self.engines: list[str] = []
        self.notes: list[str] = []
        self.stopped = False

    def run(self) -> Solution[SwapPlan]:
        """All phases within the limits; Ctrl-C keeps what there is."""
        try:
            self._raise_bound(floor_ticks(self.given, math.inf if self.limits.work is not None else self._left()))
            self._report()
            refused = self._begin()
            if refused is not None:
                return refused
            weights = self._relax()
            if not self._small():
                weights = self._tighten_again(weights)
            if not self._done():
                self._improve(weights)
            if not self._done() and self._small():
                self._prove()
        except KeyboardInterrupt:
            self.notes.append(INTERRUPTED)
            self._begin_with_all()  # it may have come before the first plan
        return self._answer()

    def _begin_with_all(self) -> None:
        self.best.offer_set(range(len(self.given.size)))
        self.best.offer([(tensor, self.given.last[tensor]) for tensor in range(len(self.given.size))])

    def _begin(self) -> Solution[SwapPlan] | None:
        """Plans to start from: all tensors (feasible whenever anything is), the given plan, the heuristics.

        Where host memory is too short for all tensors, others are looked for; the answer, if there is no plan.
        """
        self._begin_with_all()
        if self.options.start is not None:
            self.best.offer(choices_of(self.problem, self.options.start))
        if self.best.makespan is None:
            found = whatever_fits(self.problem, self.given, self.call, self.options.engine)
            if isinstance(found, Solution):
                return found
            self.best.offer(found[0])
            self.best.offer_set([tensor for tensor, _ in found[0]])
        offer_orders(self.given, self.best)
        for printed in (True, False):
            if self._left() <= 0:
                break
            plan = GreedySwap(printed=printed).solve(self.problem, self.limits).plan
            if plan is not None:
                self.best.offer(choices_of(self.problem, plan))
        return None

    def _relax(self) -> list[float]:
        """Model F: the bound, and the selection to round."""
        chosen = {tensor for tensor, _ in self.best.choices}
        weights = [float(tensor in chosen) for tensor in range(len(self.given.size))]
        engine = {"auto": "highs"}.get(self.options.engine, self.options.engine)
        if engine == "cpsat" and not self._small():
            self.notes.append(NO_RELAXATION)
        if engine == "cpsat":
            return weights
        for most in self._levels():
            if self._done():
                break
            weights = self._relax_at(most, engine) or weights
        return weights

    def _levels(self) -> list[int | None]:
        """The sizes of model F, coarse ones first: they take a second where the whole one takes minutes."""
        ops = span(self.given)
        coarse = [most for most in LEVELS if MUCH_LARGER * most < ops]
        return [*coarse, *([None] if ops < POINTS else [])]

    def _relax_at(self, most: int | None, engine: str) -> list[float] | None:
        """One model F, for 0.6 of the time left: raises the bound, offers rounded sets; the selection, where found."""
        assert self.best.makespan is not None
        model = fluid(self.given, self.best.makespan, most=most)
        answer = self._ask(model.model, engine, share=0.6)
        proven = model.model.dual_bound(answer.row_duals) if answer.row_duals is not None else None
        if proven is not None:
            self._raise_bound(model.bound_ticks(proven))
        if answer.x is None:
            return None
        weights = [float(answer.x[column]) for column in model.selection]
        round_selection(self.given, weights, self.best)
        self._report()
        return weights

    def _tighten_again(self, weights: list[float]) -> list[float]:
        """Model D until the best plan waits nowhere that was not watched."""
        watched: list[int] = []
        for _ in range(TIGHTENINGS):
            now = self._watched()
            if self._done() or set(now[:WAITS]) <= set(watched):
                break
            watched = now
            weights = self._tighten(weights)
        return weights

    def _tighten(self, weights: list[float]) -> list[float]:
        """Model D, where it is small enough: a higher bound and a better selection."""
        if self.options.engine == "cpsat" or len(weights) > self.options.whole_tensors:
            return weights
        assert self.best.makespan is not None
        model = discrete(self.given, self.best.makespan, self._watched())
        if model is None:
            return weights
        engine = {"auto": "highs"}.get(self.options.engine, self.options.engine)
        answer = self._ask(model.model, engine, share=0.4)
        if answer.bound is not None:
            self._raise_bound(model.bound_ticks(answer.bound), SLACK)
        if answer.x is None:
            return weights
        weights = [float(answer.x[column]) for column in model.selection]
        round_selection(self.given, weights, self.best)
        self._report()
        return weights

    def _watched(self) -> list[int]:
        """The op of the largest need, then those that wait for memory in the best plan, then those before the turn."""
        need, busy = self.given.need, self.given.busy
        turn = min(self.given.last)
        waits = memory_waits(self.given, self.best.choices)
        order = [max(busy, key=need.__getitem__), *waits, *(op for op in busy if op < turn)]
        return list(dict.fromkeys(order))

    def _improve(self, weights: list[float]) -> None:
        """Annealing around the relaxation's selection, for the time that is left, or as many rounds as `work` buys."""
        began, time_s = time.perf_counter(), max(1e-6, self.call.share_s(0.3 if self._small() else 1.0))
        rounds = None if self.limits.work is None else max(1, int(POLISH_ROUNDS * self.limits.work))
        if self._small():
            rounds = SMALL_ROUNDS if rounds is None else min(rounds, SMALL_ROUNDS)

        def progress(number: int) -> float:
            if number % 64 == 0:
                self._report()
            spent = (time.perf_counter() - began) / time_s
            if self.stopped or spent >= 1.0:
                return 1.0
            return spent if rounds is None else number / rounds

        polish(self.given, self.best, weights, self.limits.seed, self._goal(), progress)

    def _prove(self) -> None:
        """Model X: optimality on a small instance."""
        assert self.best.makespan is not None
        engine = {"auto": "cpsat"}.get(self.options.engine, self.options.engine)
        if largest_number(self.given, self.best.makespan) > EXACT_FLOATS:
            self.notes.append("the sizes or times are too large for the exact model: give them in coarser units")
            return
        model = exact(self.given, self.best.makespan)
        answer = self._ask(model.model, engine, share=1.0)
        if answer.x is not None:
            self.best.offer(model.choices(answer.x))
        if answer.bound is not None:
            self._raise_bound(answer.bound, 0.0 if answer.engine.startswith("CP-SAT") else SLACK)

    def _ask(self, model: LinearModel, engine: str, share: float) -> Answer:
        limits = Limits(
            time_s=max(0.01, self.call.share_s(share)),
            work=self.limits.work,
            gap=0.0,
            threads=self.limits.threads,
            seed=self.limits.seed,
        )
        answer = solve(model, limits, engine, self._watch_engine)
        self.engines.append(answer.engine)
        self.notes += [answer.fallback] if answer.fallback else []
        if answer.interrupted:
            self.stopped = True
            self.notes.append(INTERRUPTED)
        return answer

    def _watch_engine(self, incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        self._report()
        return self.stopped

    def _report(self) -> None:
        if (
            self.watch is not None
            and not self.stopped
            and self.watch(self._whole_us(self.best.makespan), self._whole_us(self.bound), self._elapsed())
        ):
            self.stopped = True

    def _whole_us(self, ticks: int | None) -> int | None:
        return None if ticks is None else self.given.whole_us(ticks)

    def _raise_bound(self, bound: float, slack: float = 1e-9) -> None:
        """Times are whole ticks, so a bound rounds up; a plan's makespan caps it.

        `slack` is what a bound may err by, relative to itself: nothing to speak of for re-added duals, the engine's own
        tolerance for a float engine's integer search, 0 for CP-SAT.
        """
        whole = math.ceil(bound - slack * max(1.0, abs(bound)))
        self.bound = max(self.bound, min(whole, self.best.makespan or whole))

    def _goal(self) -> float:
        """What is good enough: objectives are whole microseconds, so the bound rounds up to one."""
        whole = self.given.whole_us(self.bound) * self.given.ticks
        return whole + self.limits.gap * (self.best.makespan or 0)

    def _done(self) -> bool:
        return (
            self.stopped or self._left() <= 0 or (self.best.makespan is not None and self.best.makespan <= self._goal())
        )

    def _left(self) -> float:
        return self.limits.time_s - self._elapsed()

    def _elapsed(self) -> float:
        return self.call.elapsed_s

    def _small(self) -> bool:
        return len(self.given.size) <= self.options.exact_tensors and len(self.given.time) <= self.options.exact_ops

    def _answer(self) -> Solution[SwapPlan]:
        engine = " + ".join(dict.fromkeys(self.engines)) or None
        reason = "; ".join(dict.fromkeys(self.notes)) or None
        if self.best.makespan is None:
            return self.call.based(self.given.whole_us(self.given.base)).unknown(
                reason or "no plan within the limits: give more time", self.given.whole_us(self.bound), engine=engine
            )
        found = self.best.choices, self.best.makespan
        bound = min(self.bound, self.best.makespan)
        return feasible(self.problem, self.given, self.call, found, bound, engine=engine, reason=reason)
