"""`joint`: never worse than the best single technique, with a bound that anyone can add up again (README, `joint`).

One file: the parts of one solve share its best draft, its proofs and its clock.
"""

import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice, takewhile
from typing import NamedTuple

import msgspec

from solvers.ir.errors import BayplanError, InvalidInput, InvalidProblem
from solvers.ir.joint import JointPlan, JointProblem
from solvers.ir.solution import INTERRUPTED, Call, Limits, Solution, Watch
from solvers.joint import anneal
from solvers.joint.anneal import PATTERNS, annealing_of
from solvers.joint.answers import LONG, Incumbent, trivial
from solvers.joint.branch import PROGRAMS
from solvers.joint.choice import Shadow, fill, keep_all, swap_all
from solvers.joint.counted import CountedProof, refined
from solvers.joint.draft import Draft, plan_of
from solvers.joint.evict import evicted
from solvers.joint.gaps import planned
from solvers.joint.given import Given, given_of
from solvers.joint.greedy import Hiding, greedy, link_prices
from solvers.joint.guided import relaxed_prices, shadow_of
from solvers.joint.lanes import FAULT
from solvers.joint.moment import Proof, Relaxation
from solvers.joint.moments import moments
from solvers.joint.singles import recompute_only, swap_only
from solvers.joint.stretches import Together, bounded
from solvers.joint.swaps import choice_of

SQUARE, STEPS, SMALL, EACH = 7_000_000_000_000, 20_000_000, 6_000, 260
"""Steps of annealing a unit of `work`: `SQUARE` over the square of the number of ops (a step looks at all stages), at
most `STEPS`, and at most `SMALL` an op, or `EACH` times the number of ops an op if that is more."""
PLAIN, ALONE = 3_000_000_000_000, 0.4
"""Of these the first ones change one decision each: so many over that square, at most `SMALL` an op, and without `work`
at most that share of the search's time."""
CHAINS, CHAIN, WARM = 30, (4_000, 12_000), (0.003, 0.009, 0.03)
"""Steps from one draft, one of so many parts of all, within limits; what one may lose at first."""
FEWER = (1.0, 0.9, 0.8, 0.65, 0.5, 0.3)
"""How much of the link's time variants of the greedy count on: what leaves late makes the next stages wait."""
SHOWN = (1.0, 0.5, 0.2, 0.0)
"""What is left of the time of ops that communication could hide, in variants of the greedy."""
LONGEST_S = 120.0
"""The most seconds for a single technique's solver, however much time there is."""
GAPS = 100  # choices by the model of gaps that a unit of work allows in long steps
FULL = 0.1  # the work from which on stretches get all the linear programs that they may have
GREEDY, SINGLES, BOUND, FIRST, STRETCHES, COUNTED = 0.5, 0.15, 0.3, 0.8, 0.2, 0.05
"""Shares of the time: the greedy for long steps, each single solver, the bound at moments, its first moment at most,
stretches, counts."""


@dataclass(frozen=True)
class Joint:
    """Keep, swap or recompute, decided together.

    It begins from every single technique's plan and the greedy's, bounds the class by linear relaxations at single
    moments, follows their prices, and improves by annealing over single decisions. `engine` solves the relaxations
    (cpsat is refused: it has no duals). `singles` False leaves the single techniques' solvers out.
    """

    engine: str = "auto"
    singles: bool = True
    NAME = "joint"

    def solve(self, problem: JointProblem, limits: Limits, watch: Watch | None = None) -> Solution[JointPlan]:
        """The best plan and the best bound within the limits; INFEASIBLE only with the closed form's proof."""
        if self.engine == "cpsat":
            raise InvalidInput("joint needs dual values, which cpsat does not give: choose highs, gurobi or auto")
        call, given = Call(self.NAME, limits), given_of(problem)
        known = trivial(given, call)
        return known if known is not None else _Solve(self, given, watch, call.based(given.base_us)).answer()


class Chain(NamedTuple):
    """How many steps, how warm at first, and the share of them that changes many decisions."""

    steps: int
    warm: float
    share: float


class _Solve:
    """One solve: the greedy, the bound, its prices, the single techniques, and local search for what is left."""

    def __init__(self, options: Joint, given: Given, watch: Watch | None, call: Call) -> None:
        self.options, self.given, self.call = options, given, call
        self.best = Incumbent(given, watch, call, bound=float(given.base_us))
        self.proof: Proof | None = None
        self.shadow: Shadow | None = None
        self.proofs: list[Proof] = []
        self.together: Together | None = None
        self.refined: Proof | None = None
        self.counted: CountedProof | None = None
        self.floor = self.best.bound
        self.notes: list[str] = []

    def answer(self) -> Solution[JointPlan]:
        """The greedy, then every part in turn until one proves the end; Ctrl-C keeps what there is."""
        parts = self._bound, self._stretches, self._counted, self._variants, self._guided, self._singles, self._search
        try:
            self._first()
            for part in parts:
                if not self.best.over():
                    part()
        except KeyboardInterrupt:
            self.notes.append(INTERRUPTED)
            if self.best.draft is None:
                self._everything()
        return self._answered()

    def _first(self) -> None:
        """Plans that cost little to find: of long steps first what takes tenths of a second, then the greedy's."""
        until = math.inf
        if len(self.given) > LONG:
            self._evicted()
            until = time.perf_counter() + self.call.share_s(GREEDY)
        if self.best.draft is None:
            self._everything()
        enough = self.best.limited()
        found = greedy(self.given, lambda: self.best.asked() or enough() or time.perf_counter() > until)
        self.best.offer_hidden(found, "greedy")
        if found is None and len(self.given) <= LONG:
            self._evicted()

    def _evicted(self) -> None:
        """Without a plan whatever time is left."""
        best = self.best
        for choice in evicted(self.given, lambda: best.stopped or (best.draft is not None and best.over())):
            best.offer_choice(choice, "eviction")

    def _everything(self) -> None:
        """The plan that there always is without a host limit, so that nothing later has to find one."""
        self.best.offer_hidden(swap_all(self.given), "swap all")

    def _variants(self) -> None:
        """The greedy with less of the link's time, with the earliest outputs first, and counting on communication."""
        stop = self.best.limited()
        hiding = Hiding(self.given, stop)
        shown = SHOWN if any(self.given.hideable) else (1.0,)
        for link, early, left in (*((1.0, True, left) for left in shown), *((link, False, 1.0) for link in FEWER)):
            if self.best.over():
                break
            prices = link_prices(self.given, hiding.swaps(link, early, enough=early))
            filled = fill(self.given, keep_all(self.given), replace(prices, shown=left), stop)
            self.best.offer_hidden(filled, "greedy")

    def _bound(self) -> None:
        """The relaxation at each moment, the fullest one first."""
        deadline = time.perf_counter() + self.call.share_s(BOUND)
        for stage in moments(self.given):
            left = deadline - time.perf_counter() if self.proofs else FIRST * self.call.left_s
            if left <= 0 or self.best.over():
                break
            limits = msgspec.structs.replace(self.call.limits, time_s=left, work=None, gap=0.0)
            found = self._proof(stage, limits)
            if found is None:
                continue
            self.proofs.append(found)
            if self.proof is None or found.bound_us > self.proof.bound_us:
                self.proof = found
                self.best.bound = max(self.best.bound, float(found.bound_us))
                self.best.report()

    def _stretches(self) -> None:
        """What stretches of the step prove together, where memory is so short that stages wait for one another."""
        deadline, work = time.perf_counter() + self.call.share_s(STRETCHES), self.call.limits.work
        programs = PROGRAMS if work is None else math.ceil(PROGRAMS * min(1.0, work / FULL))

        def limits() -> Limits | None:
            left = deadline - time.perf_counter()
            if left <= 0 or self.best.over():
                return None
            return msgspec.structs.replace(self.call.limits, time_s=left, work=None, gap=0.0)

        try:
            for found in bounded(self.given, limits, self.options.engine, programs):
                self.together = found
                self.best.bound = max(self.best.bound, float(found.bound_us))
                self.best.report()
        except BayplanError as error:
            self._refused(error)

    def _counted(self) -> None:
        """The best moment refined, where no stretches prove more; the search is as warm as without (`floor`)."""
        self.floor, proof = self.best.bound, self.proof
        left = self.call.share_s(COUNTED)
        if proof is None or left <= 0 or not self.given.base_us < proof.bound_us == self.floor:
            return
        limits = msgspec.structs.replace(self.call.limits, time_s=left, work=None, gap=0.0)
        self.refined, self.counted = refined(Relaxation(self.given, proof.stage), proof, limits, self.options.engine)
        self.best.bound = float((self.counted or self.refined).bound_us)

    def _proof(self, stage: int, limits: Limits) -> Proof | None:
        """What the engine proves at a moment; that it refuses a model's numbers takes no plan away."""
        try:
            return Relaxation(self.given, stage).proof(limits, self.options.engine)
        except BayplanError as error:
            self._refused(error)
            return None

    def _refused(self, error: BayplanError) -> None:
        """Note it once; raise what is the user's to mend."""
        if isinstance(error, InvalidInput) and not isinstance(error, InvalidProblem):
            raise error  # no such engine, say
        if not any(said.startswith("the relaxation was not solved") for said in self.notes):
            self.notes.append(f"the relaxation was not solved ({error})")

    def _guided(self) -> None:
        """Choices at the relaxations' prices, the best bound's first, and by the model of gaps."""
        proofs, stop, work = (
            sorted(self.proofs, key=lambda proof: -proof.bound_us),
            self.best.limited(),
            self.call.limits.work,
        )
        most = None if work is None or len(self.given) <= LONG else math.ceil(GAPS * work)
        for proof in proofs[:3]:
            if self.best.over():
                return
            prices = relaxed_prices(self.given, proof)
            self.best.offer_hidden(fill(self.given, keep_all(self.given), prices, stop), "relaxation")
        try:
            found = planned(self.given, proofs, self._unbound, self.options.engine, self.best.over)
            for choice in islice(found, most):
                self.best.offer_hidden(choice, "gaps")
        except BayplanError as error:
            self._refused(error)

    def _unbound(self) -> Limits:
        """Limits of a linear model: the time that is left."""
        return msgspec.structs.replace(self.call.limits, time_s=max(0.0, self.call.left_s), work=None, gap=0.0)

    def _singles(self) -> None:
        if self.options.singles:
            for by, single in (("swap only", swap_only), ("recompute only", recompute_only)):
                if not self.best.over():
                    draft = single(self.given, self._share(), self._watched)
                    if draft is not None:
                        self.best.offer(draft, by)

    def _share(self) -> Limits:
        limits = self.call.limits
        work = None if limits.work is None else SINGLES * limits.work
        time_s = self.call.share_s(SINGLES)
        return msgspec.structs.replace(limits, time_s=time_s if work is not None else min(time_s, LONGEST_S), work=work)

    def _watched(self, incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        """What a single technique's own solver tells is not told on; whoever watches may still stop it."""
        self.best.report()
        return self.best.stopped

    def _search(self) -> None:
        """Annealing from each of the drafts there are in turn, then for longer from the best, until the limits."""
        if anneal.NATIVE is None:
            self.notes.append(anneal.SLOW)
        self.shadow = shadow_of(self.given, self.proof) if self.proof is not None else None
        work, count, source = self.call.limits.work, len(self.given), random.Random(self.call.limits.seed)
        unit = 1.0 if work is None else work
        steps = math.inf if work is None else math.ceil(work * _steps(count))
        each = int(min(max(steps / CHAINS, CHAIN[0]), CHAIN[1]))
        plain = math.ceil(unit * min(PLAIN / count**2, SMALL * count))
        until = math.inf if work is not None else time.perf_counter() + ALONE * self.call.left_s
        chains = takewhile(lambda _: time.perf_counter() < until, self._chains(each, WARM[:1]))
        steps -= self._searched(chains, plain, 0.0, source)
        self._searched(self._chains(each, WARM), steps, PATTERNS, source)

    def _searched(
        self, chains: Iterator[tuple[int, Draft, float]], steps: float, share: float, source: random.Random
    ) -> int:
        """Take so many steps, that share of them changing many decisions; how many were taken."""
        taken = 0
        for chain, start, warm in chains:
            if taken >= steps or self.best.asked():
                break
            chain = int(min(steps - taken, chain))
            self._annealed(Chain(chain, warm, share), start, source)
            taken += chain
        return taken

    def _chains(self, each: int, warmths: Sequence[float]) -> Iterator[tuple[int, Draft, float]]:
        """How many steps from which draft, and how warm: more of the same brings less than other beginnings do."""
        starts = [self.best.pool[objective] for objective in sorted(self.best.pool)]
        for warm in cycle(warmths):
            yield from ((each, start, warm) for start in starts)
            if self.best.draft is None:
                return
            yield 2 * each, self.best.draft, warm

    def _annealed(self, chain: "Chain", start: Draft, source: random.Random) -> None:
        """Offer what some steps from a draft find, and its last one as other rooms' searches would time it."""
        best, given = self.best, self.given
        annealing = annealing_of(given, choice_of(given, start), source, chain.share, self.shadow)
        if annealing.now == FAULT or best.objective is None:
            return
        above = given.ticks * max(1.0, best.objective - self.floor)
        for draft in [*annealing.drafts(chain.steps, chain.warm * above, best.asked)][-1:]:
            best.offer(draft, "search")
        if not best.over():
            best.offer_hidden(choice_of(given, annealing.draft), "search")

    def _answered(self) -> Solution[JointPlan]:
        best, notes = self.best, "; ".join(self.notes) or None
        proofs = [proof for proof in (self.proof, self.together, self.refined, self.counted) if proof is not None]
        engine = self.options.engine if proofs else None
        proof = max(proofs, key=lambda proof: proof.bound_us, default=None)
        certificate = proof.certificate if proof is not None and proof.bound_us > self.given.base_us else None
        if best.draft is None or best.objective is None:
            said = notes or "no plan was found within the limits: give more time"
            return self.call.unknown(said, best.bound, engine=engine, certificate=certificate)
        said = "; ".join(filter(None, (f"found by {best.by}", notes)))
        return self.call.found(  # raises where a bound is above the objective: one of them is wrong then
            plan_of(self.given, best.draft),
            best.objective,
            best.bound,
            reason=said,
            engine=engine,
            certificate=certificate,
        )


def _steps(count: int) -> float:
    """How many steps of annealing a unit of `work` is for so many ops."""
    return min(SQUARE / count**2, STEPS, max(SMALL, EACH * count) * count)
