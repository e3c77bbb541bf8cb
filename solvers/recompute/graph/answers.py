"""What the solvers of this room answer alike: nothing to do, impossible, or a plan measured exactly."""

import itertools
import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from solvers.ir.recompute import RecomputeGraphPlan
from solvers.ir.solution import INTERRUPTED, Call, Limits, Solution, Watch
from solvers.recompute.graph.evict import evictions
from solvers.recompute.graph.least import least_budget_bytes
from solvers.recompute.graph.polish import polish
from solvers.recompute.graph.replay import Instance, Runs, plan_of, replay_runs, retained, useful

Answer = Solution[RecomputeGraphPlan]
SLACK = 1e-6
"""The relative tolerance of the float engines' integer searches: their bounds are lowered by it before rounding up."""
TICKS = 200_000
"""Steps of polishing first plans that a unit of deterministic work allows, divided by the number of ops."""
LATE_S = 1.0
"""Seconds of the processor that a search for a quick plan has at least, even behind the limits, where there is none."""
ASKED = 64
"""How many times it is asked whether that is over before the processor's clock is, which is slow to tell."""
FITS = "everything fits: nothing needs to be recomputed"


@dataclass
class Search:
    """One solve under way: the best plan so far, the bound, and what is to be told about both.

    `bound` is a valid lower bound for every plan of the problem; it begins with the time of each op once.
    """

    given: Instance
    solver: str
    limits: Limits
    watch: Watch | None = None
    began: float = field(default_factory=time.perf_counter)
    runs: Runs | None = None
    objective: int | None = None
    bound: int = 0
    engine: str | None = None
    notes: list[str] = field(default_factory=list)
    stopped: bool = False
    whole_s: float = 0.0

    def __post_init__(self) -> None:
        """Each op runs at least once; `whole_s` is the time limit, of which parts of a search have shares."""
        self.bound, self.whole_s = self.given.base, self.limits.time_s

    def left_s(self) -> float:
        """Seconds left of the time limit."""
        return self.limits.time_s - (time.perf_counter() - self.began)

    @contextmanager
    def share(self, part: float) -> Iterator[None]:
        """Within, this part of the time left, or of the whole work where that is what counts, is all there is."""
        limits = self.limits
        if limits.work is None:
            elapsed = time.perf_counter() - self.began
            some = msgspec.structs.replace(limits, time_s=max(0.0, elapsed + part * (limits.time_s - elapsed)))
        else:
            some = msgspec.structs.replace(limits, work=part * limits.work)
        self.limits = some
        try:
            yield
        finally:
            self.limits = limits

    def counted(self, per_work: float) -> Callable[[], bool]:
        """Whether to end a loop that asks this at each step: `done`, or after so many steps a unit of work."""
        steps = itertools.count()
        most = math.inf if self.limits.work is None else per_work * self.limits.work
        return lambda: next(steps) > most or self.done()

    def done(self) -> bool:
        """Whether the search was stopped, is out of time, or has met its bound within the gap asked for."""
        if self.stopped or self.left_s() <= 0:
            return True
        return self.objective is not None and self.objective - self.bound <= self.limits.gap * self.objective

    def offer(self, recomputed: Sequence[Collection[int]]) -> bool:
        """Take a plan (what is computed again, by stage) if it is valid and better; answers whether it is valid."""
        return self.offer_runs(retained(self.given, useful(self.given, recomputed)))

    def offer_runs(self, runs: Runs) -> bool:
        """Take a plan given as runs if it is valid and better; answers whether it is valid."""
        found = replay_runs(self.given, runs)
        if found.violation is not None:
            return False
        if self.objective is None or found.objective_us < self.objective:
            self.runs, self.objective = runs, found.objective_us
            self.report()
        return True

    def raise_bound(self, bound: float, slack: float = 0.0) -> None:
        """Objectives are whole microseconds, so a bound rounds up; `slack` is its error, relative to itself."""
        whole = math.ceil(bound - slack * max(1.0, abs(bound)))
        self.bound = max(self.bound, whole if self.objective is None else min(whole, self.objective))

    def report(self, incumbent: float | None = None, bound: float | None = None) -> None:
        """Show the progress, with what an engine may know better; the watch may stop the search."""
        if self.watch is not None and not self.stopped:
            best = min((x for x in (self.objective, incumbent) if x is not None), default=None)
            known = max(self.bound, bound or 0)
            self.stopped = self.watch(best, known, time.perf_counter() - self.began)

    def observed(self, incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        """A watch for engines whose model holds all plans."""
        self.report(incumbent, bound)
        return self.stopped

    def observed_part(self, incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        """A watch for engines whose model holds some plans only: their bound says nothing of the problem."""
        self.report(incumbent)
        return self.stopped

    def heard(self, incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        """A watch for engines whose model counts otherwise: neither of their numbers says anything of the problem."""
        self.report()
        return self.stopped

    def answer(self) -> Answer:
        """The best plan with its bound; UNKNOWN without one."""
        reason = "; ".join(dict.fromkeys(self.notes)) or None
        if self.runs is None or self.objective is None:
            said = reason or "no plan was found within the limits: give more time"
            return self._call.unknown(said, self.bound, engine=self.engine)
        return self._call.found(plan_of(self.runs), self.objective, self.bound, engine=self.engine, reason=reason)

    def infeasible(self, least: int, reason: str) -> Answer:
        """There is no plan; `reason` must say `at least {least} bytes`."""
        return self._call.infeasible(reason, engine=self.engine, least_budget_bytes=least)

    @property
    def _call(self) -> Call:
        return Call(self.solver, self.limits, self.began, self.given.base)


def uninterrupted(search: Search, run: Callable[[], Answer]) -> Answer:
    """What `run` answers; on Ctrl-C the best so far."""
    try:
        return run()
    except KeyboardInterrupt:
        search.stopped = True
        search.notes.append(INTERRUPTED)
        return search.answer()


def trivial(search: Search) -> Answer | None:
    """The answers that need no search: a working set above the budget, or everything kept fits."""
    given, least = search.given, least_budget_bytes(search.given)
    if least > given.budget:
        search.engine = "closed form"
        return search.infeasible(
            least, f"the largest working set needs at least {least} bytes, the budget is {given.budget} bytes: raise it"
        )
    if search.offer([()] * len(given)):
        search.engine = "closed form"
        search.notes.append(FITS)
        return search.answer()
    return None


def any_plan(search: Search) -> None:
    """The first plan that eviction finds, whatever share of the limits there is."""
    for recomputed in evictions(search.given, _once_found(search), search.done):
        if search.offer(recomputed):
            break


def first_plans(search: Search, windows: Sequence[int]) -> None:
    """Offer quick plans (milliseconds to a few seconds): evict and recompute on demand, then polish, the best first.

    `windows` are the communications that may hide recomputation.
    """
    given, stop, plans = search.given, search.counted(TICKS / len(search.given)), list[tuple[int, list[set[int]]]]()
    for recomputed in evictions(given, _once_found(search), search.done):
        search.offer(recomputed)
        plans.append((sum(given.time[i] for run in recomputed for i in run), recomputed))
    for _, recomputed in sorted(plans, key=lambda plan: plan[0]):
        if search.done():
            break
        search.offer(polish(given, recomputed, windows, stop))


def _once_found(search: Search) -> Callable[[], bool]:
    """Whether to end a search for plans: `done`; without a plan only behind all limits of time, `LATE_S` at most."""
    began, late = time.thread_time(), itertools.count(1)

    def stop() -> bool:
        if search.runs is not None or search.stopped or search.limits.work is not None:
            return search.done()
        if time.perf_counter() <= search.began + search.whole_s:
            return False
        return next(late) % ASKED == 0 and time.thread_time() > began + LATE_S

    return stop


def windows_of(given: Instance) -> list[int]:
    """The communications, in order."""
    return [t for t in range(len(given)) if given.comm[t]]


def no_plan(search: Search) -> Answer:
    """An engine proved that no plan of the whole class fits, though every working set does."""
    least = search.given.budget + 1
    return search.infeasible(
        least, f"{search.engine} proved that no plan fits: the budget must be at least {least} bytes"
    )
