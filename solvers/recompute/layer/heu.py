"""`heu`: Lynx-HEU as a look-up in the front of the layer's policies, or as the integer programme on an engine."""

import math
import time
from dataclasses import dataclass
from typing import Literal

import msgspec

from solvers.engines import NAMES
from solvers.engines.choice import is_present
from solvers.ir.errors import InvalidInput
from solvers.ir.names import unknown
from solvers.ir.recompute import RecomputeLayerPlan, RecomputeLayerProblem
from solvers.ir.solution import Limits, Solution, Status, Watch
from solvers.recompute.layer.answers import TOO_LARGE, Ask, fixed_bytes
from solvers.recompute.layer.blend import QUICK, THOROUGH, Blend, best_mix, best_mix_with_last, best_pair
from solvers.recompute.layer.front import Front, Policy, TooManyStates, front_of
from solvers.recompute.layer.ilp import least_bytes, mix_bound, solve_programme
from solvers.recompute.layer.layer import Layer
from solvers.recompute.layer.mix import Menu, least_bound, peak_bounds
from solvers.recompute.layer.policies import keep_all
from solvers.recompute.layer.quick import quick_policy

FRONT = "front"
LARGEST = 2**49
"""The largest coefficient of the integer programme: HiGHS refuses those beyond 10¹⁵."""
EVERYTHING_FITS = "everything fits: nothing needs to be recomputed"
BEST_SINGLE = "no single policy is faster: the bound is that of mixing policies over the layers"
FRONT_SHARE = 0.75
"""Of the time limit: what the list of policies may take; a layer with too many has the rest for other ways."""
TOO_MANY = "the layer has too many policies to list, so the integer programme decides: the bound is its relaxation's"
TOO_SLOW = TOO_MANY.replace("to list", f"to list in {FRONT_SHARE:.0%} of the time")
ALONE_SHARE, COLUMN_S = 0.8, 5e-6
"""Of the time limit: by when policies without windows are listed. Seconds that an engine takes a column at least."""
LONG = 100
"""Ops of a layer from which on the quick policy is made first."""
TOO_LATE = "no time was left for an engine"
STOPPED = "stopped before the layer's policies were listed: give more time"


@dataclass(frozen=True)
class Heu:
    """Lynx-HEU (§4.2, corrected): what each layer stores, recomputes in communication, or on the critical path.

    `groups` 1: one policy for all layers, as in the paper; 2: the best mix of two; None: of any number. The bound is
    the best mix's whatever `groups`, so one policy is OPTIMAL only where it meets it. `method` `front` looks the
    answer up; `ilp` solves the integer programme for one policy on `engine`, as a cross-check.
    """

    groups: int | None = 1
    method: Literal["front", "ilp"] = "front"
    engine: str = "auto"
    NAME = "heu"

    def __post_init__(self) -> None:
        """Refuse parameters that cannot mean anything."""
        if self.groups not in (1, 2, None):
            raise InvalidInput(f"groups is {self.groups}: choose 1 (one policy), 2 (a mix of two) or none (any mix)")
        if self.method not in ("front", "ilp"):
            raise unknown("method", str(self.method), ("front", "ilp"))
        if self.method == "ilp" and self.groups != 1:
            raise InvalidInput(f"method ilp decides one policy, but groups is {self.groups}: leave groups at 1")
        if self.engine not in NAMES:
            raise unknown("engine", self.engine, NAMES)

    def solve(
        self, problem: RecomputeLayerProblem, limits: Limits, watch: Watch | None = None
    ) -> Solution[RecomputeLayerPlan]:
        """The best policy or mix; INFEASIBLE with the least budget where nothing fits."""
        ask = Ask(problem, self.NAME, limits, time.perf_counter())
        layer = Layer.of(problem)
        everything = [keep_all(layer).group(problem.layers)]
        if self.method == "ilp":
            return ask.unknown(TOO_LARGE) if ask.too_large else self._by_programme(ask, watch, None)
        if ask.fits(everything):
            return ask.feasible(everything, bound=0, engine="closed form", reason=EVERYTHING_FITS)
        if ask.too_large:
            return ask.unknown(TOO_LARGE)
        first = quick_policy(ask) if len(layer.useful) > LONG else None  # later there may be no time for it
        clock = _Clock(ask, watch, FRONT_SHARE)
        try:
            front = front_of(layer, problem.inflight_microbatches, clock.stop)
        except TooManyStates:
            if clock.told or ask.limits.time_s <= 0:
                return _quickest(ask, first)
            return self._by_programme(ask, watch, TOO_SLOW if clock.stopped else TOO_MANY, first)
        return self._by_front(ask, front, _Clock(ask, watch))

    def _by_front(self, ask: Ask, front: Front, clock: "_Clock") -> Solution[RecomputeLayerPlan]:
        problem = ask.problem
        layers, inflight = problem.layers, problem.inflight_microbatches
        least = fixed_bytes(problem) + front.least_memory(layers, inflight)
        choice = front.best(layers, inflight, ask.room_bytes)
        if choice is None:
            return ask.infeasible(least, engine=FRONT)
        menu = Menu(front.time_us, front.share(inflight), front.working_bytes, layers, ask.room_bytes, front.late_us)
        blend, bound = self._mixed(menu, choice.number, clock)
        late = front.late_us
        mix = blend.mix if late is None else sorted(blend.mix, key=lambda one: -int(late[one[0]]))
        groups = [front.policy(number).group(count) for number, count in mix]
        slower = self.groups == 1 and bound < blend.time_us
        return ask.feasible(groups, bound, FRONT, BEST_SINGLE if slower else None, least)

    def _mixed(self, menu: Menu, number: int, clock: "_Clock") -> tuple[Blend, int]:
        """The best mix of as many policies as asked for, and the bound for all mixes."""
        alone = ((number, menu.layers),)
        best = menu.time_of(alone)
        single = Blend(alone, best, best)
        bounds = peak_bounds(menu, best)
        bound = least_bound(bounds, best)
        if bound == best:
            return single, bound
        pair = best_pair(menu, bounds, number, clock.stop)
        search = best_mix if menu.late_us is None else best_mix_with_last
        mix = search(menu, bounds, pair, QUICK if self.groups == 1 else THOROUGH, clock.stop)
        return {1: single, 2: pair, None: mix}[self.groups], mix.bound

    def _by_programme(
        self, ask: Ask, watch: Watch | None, note: str | None, first: Policy | None = None
    ) -> Solution[RecomputeLayerPlan]:
        """One policy by (I); the bound by its relaxation, valid for every mix."""
        problem = ask.problem
        copies = problem.layers * (problem.inflight_microbatches + 2)
        if max(max(copies * op.output_bytes, op.time_us) for op in problem.ops) > LARGEST:
            return ask.unknown(f"bytes or times beyond {LARGEST} are too large for the engines: give coarser units")
        needs_s = COLUMN_S * len(problem.ops) * (2 + len(problem.windows))
        known = [first or quick_policy(ask), _without_windows(ask, _Clock(ask, watch, ALONE_SHARE))]
        proven, engine = None, None
        said: str | None = TOO_LATE
        if ask.left_s > needs_s:
            proven = mix_bound(problem, self.engine, ask.limits_left())
        for name in (self.engine, "cpsat") if self.engine == "auto" and is_present("cpsat") else (self.engine,):
            if ask.left_s <= needs_s:
                break
            answer, policy = solve_programme(problem, name, ask.limits_left(), watch)
            known, engine, said = [policy, *known], answer.engine, answer.reason
            if answer.status is Status.INFEASIBLE:
                least = least_bytes(problem, self.engine, ask.limits_left())
                if least is not None:
                    return ask.infeasible(*least, engine=engine)
            if answer.status is not Status.UNKNOWN or answer.interrupted:
                break
        bound = None if proven is None else max(0, math.ceil(proven - 1e-6 * max(1.0, abs(proven))))
        reason = "; ".join(filter(None, (note, said))) or None
        plans = [[one.group(problem.layers)] for one in known if one is not None]
        fitting = [plan for plan in plans if ask.fits(plan)]
        if not fitting:
            return ask.unknown(reason or "no plan within the limits: give more time", engine=engine)
        best = min(fitting, key=ask.objective)
        objective = ask.objective(best)
        return ask.feasible(best, None if bound is None else min(bound, objective), engine, reason)


class _Clock:
    """Says when to stop: this share of the time is up, or the watch says so (`told`)."""

    def __init__(self, ask: Ask, watch: Watch | None, share: float = 1.0) -> None:
        self.ask, self.watch, self.share = ask, watch, share
        self.stopped = self.told = False

    def stop(self) -> bool:
        """Whether to end the search now; asked at every op."""
        elapsed = self.ask.elapsed_s
        if not self.stopped:
            self.told = self.watch is not None and self.watch(None, None, elapsed)
            self.stopped = self.told or elapsed > self.share * self.ask.limits.time_s
        return self.stopped


def _without_windows(ask: Ask, clock: _Clock) -> Policy | None:
    """The best single policy that recomputes on the critical path only; None where there is no time, or none fits."""
    problem = ask.problem
    layers, inflight = problem.layers, problem.inflight_microbatches
    try:
        front = front_of(Layer.of(msgspec.structs.replace(problem, windows=())), inflight, clock.stop)
        choice = front.best(layers, inflight, ask.room_bytes)
    except (TooManyStates, OverflowError):
        return None
    if choice is None:
        return None
    found = front.policy(choice.number)
    return Policy(found.stored, tuple((i, len(problem.windows)) for i, _ in found.recomputed))


def _quickest(ask: Ask, first: Policy | None) -> Solution[RecomputeLayerPlan]:
    """What can be said without a search."""
    found = first or quick_policy(ask)
    return ask.unknown(STOPPED) if found is None else ask.feasible([found.group(ask.problem.layers)], reason=STOPPED)
