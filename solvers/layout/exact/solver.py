"""`exact-layout`: any block any policy, any chunk persistent, any buffers; with a proof of how good (README).

One file: the phases of a solve share its plans, bounds and clock.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from solvers.engines import Answer, LinearModel, integral_bound, solve
from solvers.engines.choice import is_present
from solvers.engines.model import Basis, FloatArray
from solvers.ir.layout import LayoutPlan, LayoutProblem
from solvers.ir.solution import INTERRUPTED, Call, Limits, Solution, Status, Told, Watch
from solvers.layout.answers import FLOOR, LEAST_MEMORY, floor_us, memory_sentence
from solvers.layout.evaluate import instance
from solvers.layout.exact.bound import BoundTree
from solvers.layout.exact.local import Incumbent, improve, starts
from solvers.layout.exact.model import host_model, memory_model, relaxation
from solvers.layout.exact.small import fitting, try_all
from solvers.layout.least import Least
from solvers.layout.search import Search

NOTHING_FOUND = "no decision was found that fits, nor a proof that there is none: give more time"
SEARCH_S = 0.5
"""So long the paper's search may take whatever the limit is: it needs milliseconds, more only on a busy machine."""
TIME_UP = "time was up before the search had begun: this is the best of the plans that it would begin from"
NO_RELAXATION = "CP-SAT cannot solve the relaxation, whose times are fractional: use highs or gurobi for a better bound"
TOO_LARGE = "the problem is too large for the relaxation: the bound is that of compute and updates alone"
UNCERTIFIED = "the engine's own tree says that no decision ends before {} us, but gives no certificate: not the bound"
EVERY_DECISION = {"form": "every-decision/1"}
"""Certificate of an optimum by counting: whoever reads it counts again."""
MOST_COUNTED = 20_000
"""The most decisions that are tried one by one: the checker does not try more either."""
CERTIFYING = 0.5
"""Share of the time left that the certified trees take at most."""
SPLITS = 100
"""Splits of the tree with the queue's rows a unit of `work`."""
MORE = 0.1
"""Share of what is open: the queue's rows prove more if they close that, and the other rows are then left alone."""
SLOWLY = 0.8
"""Share of the last local search that is one annealing from hot to cold."""
MOST_SLOW = 200_000
"""Rounds beyond which one annealing gains no more."""
ROUNDS = 4000
"""Rounds of local search a unit of `work`."""
POOL = 3
"""Number of starting decisions from which the search starts again."""
IDLE = 0.1
"""Share of the time limit without an improvement after which the first local search ends."""


@dataclass(frozen=True)
class ExactLayout:
    """Local search on exact lane times, and a relaxation that bounds them; tiny problems by trying all decisions.

    OPTIMAL where a plan's lane time meets the bound, which always has a certificate; what the engine's own tree says
    beyond it is told in `reason`. `engine` (highs, gurobi, auto) solves the relaxation; with cpsat there is none, and
    the bound is weaker. Problems of which at most `every_decision` decisions fit are counted out, those of
    more than `most_blocks` blocks and chunks together have no relaxation either.
    """

    engine: str = "auto"
    every_decision: int = 4000
    most_blocks: int = 2000
    NAME = "exact-layout"

    def solve(self, problem: LayoutProblem, limits: Limits, watch: Watch | None = None) -> Solution[LayoutPlan]:
        """The best decision found and a valid bound; INFEASIBLE with the least device memory where none fits."""
        return _Search(self, problem, limits, watch).run()


class _Search:
    """One solve: plans first, then the bound, then whatever closes the gap."""

    def __init__(self, options: ExactLayout, problem: LayoutProblem, limits: Limits, watch: Watch | None) -> None:
        self.call = Call(ExactLayout.NAME, limits)
        self.options, self.problem, self.limits, self.watch = options, problem, limits, watch
        self.given = instance(problem)
        self.best = Incumbent(self.given)
        self.least = Least(self.given)
        self.least_device: int | None = None
        self.least_host: int | None = None
        self.base = self.bound = floor_us(self.given)
        self.certificate: dict[str, Any] | None = FLOOR
        self.engine_bound = self.bound
        self.engines: list[str] = []
        self.notes: list[str] = []
        self.pool: list[LayoutPlan] = []
        self.rounds_s = 0.0
        self.stopped = False
        self.told: tuple[int | None, int] | None = None
        self.told_s = 0.0

    def run(self) -> Solution[LayoutPlan]:
        """All phases within the limits; Ctrl-C keeps what there is."""
        try:
            if self.least.device_bytes > self.problem.device_bytes:
                self._lack()
            elif (plans := fitting(self.given, min(self.options.every_decision, MOST_COUNTED))) is not None:
                self._count(plans)
            else:
                self._search()
        except KeyboardInterrupt:
            self.notes.append(INTERRUPTED)
        return self._answer()

    def _lack(self) -> None:
        """The closed form says that there is none; where it says "at least", the engine says exactly."""
        self.certificate = LEAST_MEMORY
        if not self.least.is_exact and self._is_small():
            self._least()

    def _count(self, plans: Sequence[LayoutPlan]) -> None:
        """Every decision that fits: the optimum, or that there is none."""
        self._begin_with_search()
        if not try_all(self.best, plans, self._done):
            self._note_time()
            return
        self.certificate = EVERY_DECISION
        if self.best.end_us is None:
            self._least()
        else:
            self.bound = self.best.end_us

    def _search(self) -> None:
        self._begin()
        if self.best.plan is None:
            self._least()
        if self.best.plan is None:
            return
        self._improve(0.3, IDLE * self.limits.time_s)
        if not self._done() and self._has_relaxation():
            queue_says_more = self._certify()
            if not self._done() and not (queue_says_more and self.limits.work is None):
                self._relax()
        if not self._done() and self.engine_bound != self.best.end_us:
            self._improve(1.0, slowly=SLOWLY)

    def _begin(self) -> None:
        """The best of the paper's search, and simple decisions."""
        self._begin_with_search()
        ends: list[tuple[int, LayoutPlan]] = []
        for plan in starts(self.given):
            if self._done():
                self._note_time()
                return
            end = self.best.offer(plan)
            if end is not None:
                ends.append((end, plan))
        self.pool = [plan for _, plan in sorted(ends, key=lambda pair: pair[0])[:POOL]]

    def _begin_with_search(self) -> None:
        found = Search().solve(self.problem, Limits(time_s=max(SEARCH_S, self._left()))).plan
        if found is not None:
            self.best.offer(found)

    def _note_time(self) -> None:
        if self._left() <= 0 and self.best.end_us not in (None, self.bound):
            self.notes.append(TIME_UP)

    def _least(self) -> None:
        """The decision that needs the least device memory, in exact integers where CP-SAT is there.

        Where that is more than there is, the least host memory, too, if some is enough.
        """
        engine = "cpsat" if is_present("cpsat") else "highs"
        model = memory_model(self.given)
        answer = self._ask(model.model, engine, 1.0)
        if answer.x is not None:
            self.best.offer(model.plan(answer.x))
        if answer.status is Status.OPTIMAL and answer.objective is not None:
            self.least_device = round(answer.objective)
        if self.best.plan is None and self.problem.device_bytes >= self.least.roomy_bytes:
            answer = self._ask(host_model(self.given).model, engine, 1.0)
            if answer.status is Status.OPTIMAL and answer.objective is not None:
                self.least_host = round(answer.objective)

    def _has_relaxation(self) -> bool:
        if self.options.engine == "cpsat":
            self.notes.append(NO_RELAXATION)
            return False
        if not self._is_small():
            self.notes.append(TOO_LARGE)
        return self._is_small()

    def _is_small(self) -> bool:
        return len(self.problem.blocks) + len(self.problem.chunks) <= self.options.most_blocks

    def _certify(self) -> bool:
        """Trees over the relaxation: the bound that their leaves prove. Whether the queue's rows prove much more.

        Where they do, the engine's tree over the other rows alone would not come as far, and the time is better spent.
        """
        assert self.best.end_us is not None
        end = self.best.end_us
        began = time.perf_counter()
        until = began + CERTIFYING * self._left() if self.limits.work is None else math.inf
        tree = BoundTree(self.given, end)
        ready = until - 2 * (time.perf_counter() - began)
        self._grow(tree, until)
        if not self._done() and time.perf_counter() < ready and any(b.choice for b in self.problem.blocks):
            before = self.bound
            self._grow(BoundTree(self.given, end, queue=True), until)
            return self.bound - before > MORE * (end - before)
        return False

    def _grow(self, tree: BoundTree, until: float) -> None:
        """Let a tree grow until then; what it proves is the bound where that is more than what is known."""
        before, splits, work = self.bound, [0], self.limits.work
        most = math.inf if work is None or not tree.queue else SPLITS * work

        def ask(model: LinearModel, basis: Basis | None) -> Answer:
            return self._ask(model, self._linear(), CERTIFYING, basis=basis)

        def done() -> bool:
            splits[0] += 1
            self.bound = max(self.bound, min(tree.bound_us, tree.most_us))
            return self._done() or time.perf_counter() >= until or splits[0] > most

        try:
            tree.run(ask, done)
        finally:  # also of a tree that Ctrl-C ends
            if min(tree.bound_us, tree.most_us) > before:
                self.bound, self.certificate = min(tree.bound_us, tree.most_us), tree.certificate()

    def _relax(self) -> None:
        """The relaxation in integers, from the best decision: another one to begin from, and what the engine proves."""
        assert self.best.plan is not None and self.best.end_us is not None
        model = relaxation(self.given, self.best.plan, self.best.end_us)
        answer = self._ask(model.model, self._linear(), 0.5, model.start(self.best.plan))
        if answer.x is not None and self.best.offer(model.plan(answer.x)) is not None:
            self.pool = [model.plan(answer.x), *self.pool]
        if answer.bound is not None:
            self.engine_bound = min(integral_bound(answer.bound), self.best.end_us)

    def _linear(self) -> str:
        return {"auto": "highs"}.get(self.options.engine, self.options.engine)

    def _improve(self, share: float, idle_s: float = math.inf, slowly: float = 0.0) -> None:
        """Local search for a share of the time that is left, or as many rounds as `work` buys.

        It ends sooner where it found nothing better for `idle_s`; the relaxation then needs the time more. `slowly`:
        the share of its rounds, as many as before in that time, that are one annealing.
        """
        began = time.perf_counter()
        end_s, work = began + self.call.share_s(share), self.limits.work
        most = math.inf if work is None else max(1, int(share * ROUNDS * work))
        news = [(self.best.end_us, began)]

        def done(rounds: int) -> bool:
            now = time.perf_counter()
            if self.best.end_us != news[0][0]:
                news[0] = self.best.end_us, now
            idle = work is None and now - news[0][1] >= idle_s
            self.rounds_s = (rounds + 1) / max(1e-3, now - began)
            return rounds >= most or now >= end_s or idle or self._done()

        rounds = min(MOST_SLOW, most if work is not None else self.rounds_s * (end_s - began))
        improve(self.best, self.limits.seed, done, self.pool, int(slowly * rounds) if slowly else 0)

    def _ask(
        self,
        model: LinearModel,
        engine: str,
        share: float,
        start: FloatArray | None = None,
        basis: Basis | None = None,
    ) -> Answer:
        limits = Limits(
            time_s=max(0.01, self.call.share_s(share)),
            work=self.limits.work,
            threads=self.limits.threads,
            seed=self.limits.seed,
        )
        answer = solve(model, limits, engine, self._watch_engine, start, basis)
        self.engines.append(answer.engine)
        self.notes += [answer.fallback] if answer.fallback else []
        if answer.interrupted:
            self.stopped = True
            self.notes.append(INTERRUPTED)
        return answer

    def _watch_engine(self, incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        self._report()
        return self.stopped

    def _done(self) -> bool:
        """Whether the limits, the gap or the watcher end the search."""
        self._report()
        end = self.best.end_us
        close = end is not None and end - self.bound <= self.limits.gap * end
        return self.stopped or close or self._left() <= 0

    def _report(self) -> None:
        """Tell the watcher, of news at once, of no news every 0.2 s."""
        news, elapsed = (self.best.end_us, self.bound), self.call.elapsed_s
        if self.watch is None or self.stopped or (news == self.told and elapsed < self.told_s + 0.2):
            return
        self.told, self.told_s = news, elapsed
        self.stopped = self.watch(*news, elapsed)

    def _left(self) -> float:
        return self.call.left_s

    def _answer(self) -> Solution[LayoutPlan]:
        engine = " + ".join(dict.fromkeys(self.engines)) or None
        if self.engine_bound > self.bound:
            self.notes.append(UNCERTIFIED.format(self.engine_bound))
        reason = "; ".join(dict.fromkeys(self.notes)) or None
        end = self.best.end_us
        if end is None:
            return self._without(engine, reason)
        plan = self.best.plan
        assert plan is not None, "what ends is a plan"
        told: Told = {"engine": engine, "certificate": self.certificate}
        return self.call.based(self.base).found(plan, end, min(self.bound, end), reason, **told)

    def _without(self, engine: str | None, reason: str | None) -> Solution[LayoutPlan]:
        """No decision fits, or none was found in time."""
        least = self.least.device_bytes if self.least_device is None else self.least_device
        if least <= self.problem.device_bytes:
            said = reason or NOTHING_FOUND
            return self.call.unknown(said, self.bound, engine=engine, certificate=self.certificate)
        return self.call.infeasible(
            memory_sentence(self.least, self.least_device, self.least_host),
            engine=engine,
            least_budget_bytes=least,
            certificate=None if self.certificate == FLOOR else self.certificate,
        )
