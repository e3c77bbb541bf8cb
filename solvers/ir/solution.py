"""What a solver answers: a status that is a promise, a plan, and how far from the optimum it can be (formats.md 2)."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Generic, Protocol, TypedDict, TypeVar, Unpack

import msgspec

from solvers.ir.errors import InvalidInput, require_at_least

Watch = Callable[[float | None, float | None, float], bool]
"""`watch(incumbent, bound, elapsed_s)` sees progress and stops the search by answering True."""
INTERRUPTED = "stopped by the user: this is the best plan so far"
"""A reason of answers to Ctrl-C; where there is no plan it reads `INTERRUPTED_EARLY`."""
INTERRUPTED_EARLY = "stopped by the user before there was a plan: give it more time"


class Status(Enum):
    """A promise to the caller.

    OPTIMAL: the plan's exact objective meets a valid bound. FEASIBLE: there is a plan. INFEASIBLE: a proof that there
    is none. UNKNOWN: neither a plan nor a proof within the limits.
    """

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


TIME_S = 60.0
"""The time limit where nothing is said."""
MOST_THREADS = 1024
"""More threads than this no machine has."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """When to stop, the same for every engine.

    `time_s` is wall clock; `work` is deterministic (CP-SAT deterministic time, Gurobi work, HiGHS nodes): same seed,
    same work and `threads=1` give the same plan, however busy the machine is. Left out, `time_s` is `TIME_S`, or
    infinite where `work` is given; given beside `work`, it only ends what overran, and an answer says so. `gap` is the
    relative gap at which the search may stop.
    """

    time_s: float = None  # type: ignore[assignment]  # left out: `__post_init__` says what it is
    work: float | None = None
    gap: float = 0.0
    threads: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse limits that cannot mean anything; a time that was left out follows from the work."""
        if self.time_s is None:
            known = TIME_S if self.work is None else math.inf  # type: ignore[unreachable]
            msgspec.structs.force_setattr(self, "time_s", known)
        require_at_least(0, time_s=self.time_s, work=self.work, gap=self.gap)
        require_at_least(1, threads=self.threads)
        if self.threads > MOST_THREADS:
            raise InvalidInput(
                f"threads is {self.threads}, the limit is {MOST_THREADS}: give at most the machine's cores"
            )
        if self.seed < 0 or self.seed >= 2**31:
            raise InvalidInput(f"seed is {self.seed}, outside 0…{2**31 - 1}: choose one inside")


PlanT = TypeVar("PlanT")
OVERRAN = "the time limit ended the search before its work: another run may answer otherwise"
"""A reason of answers to limits with both, which only work makes repeatable."""


class Solution(msgspec.Struct, Generic[PlanT], frozen=True, kw_only=True):
    """A solver's answer.

    `objective` is the plan's exact objective and `bound` a valid lower bound on the optimum (None: none known), both in
    microseconds; `base` the objective with unlimited memory. `engine` names what computed it, `reason` says in a
    sentence what the status does not, `least_budget_bytes` the least feasible budget (`reason`: exactly or at least).
    """

    status: Status
    plan: PlanT | None
    solver: str
    engine: str | None = None
    objective: int | None = None
    bound: float | None = None
    base: int | None = None
    reason: str | None = None
    least_budget_bytes: int | None = None
    certificate: dict[str, Any] | None = None
    seed: int = 0
    solve_time_s: float = 0.0

    def __post_init__(self) -> None:
        """A plan and its objective stand or fall with the status; OPTIMAL needs a bound that is met."""
        has_plan = self.status in (Status.OPTIMAL, Status.FEASIBLE)
        if has_plan != (self.plan is not None) or has_plan != (self.objective is not None):
            raise ValueError(
                f"{self.solver} answered {self.status.value} with {'a' if self.plan is not None else 'no'} plan "
                f"and objective {self.objective}"
            )
        if self.bound is not None and not math.isfinite(self.bound):
            raise ValueError(f"{self.solver} claims the bound {self.bound}, which says nothing: give None")
        if self.objective is not None and self.bound is not None and self.bound > self.objective:
            raise ValueError(f"{self.solver} claims the bound {self.bound} above its own objective {self.objective}")
        if self.status is Status.OPTIMAL and self.bound != self.objective:
            raise ValueError(
                f"{self.solver} answered optimal, but its bound {self.bound} is not its objective {self.objective}"
            )

    @property
    def gap(self) -> float | None:
        """(objective − bound) / objective; 0 where the objective is 0, None where unknown."""
        if self.objective is None or self.bound is None:
            return None
        return 0.0 if self.objective == 0 else (self.objective - self.bound) / self.objective

    @property
    def overhead_gap(self) -> float | None:
        """(objective − bound) / (objective − base), the honest figure; 0 where the bound is met, None where unknown."""
        if self.objective is None or self.bound is None or self.base is None:
            return None
        if self.objective == self.bound:
            return 0.0
        overhead = self.objective - self.base
        return (self.objective - self.bound) / overhead if overhead > 0 else None


class Told(TypedDict, total=False):
    """What an answer may tell beside its plan, its bound and its reason."""

    engine: str | None
    least_budget_bytes: int | None
    certificate: dict[str, Any] | None


@dataclass(frozen=True)
class Call:
    """One call of a solver, which makes its answers: who was asked, within which limits, since when.

    `began` is of `time.perf_counter`. `base`: the objective with unlimited memory, in µs, None where not known.
    """

    solver: str
    limits: Limits
    began: float = field(default_factory=time.perf_counter)
    base: int | None = None

    def based(self, base: int) -> "Call":
        """The same call, now that the objective with unlimited memory is known."""
        return replace(self, base=base)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the call."""
        return time.perf_counter() - self.began

    @property
    def left_s(self) -> float:
        """Seconds left of the time limit."""
        return self.limits.time_s - self.elapsed_s

    def share_s(self, share: float) -> float:
        """Seconds for a part: a share of the time left, all of it where deterministic work is what counts."""
        return self.left_s if self.limits.work is not None else share * self.left_s

    def said(self, reason: str | None) -> str | None:
        """A reason, and whether the clock ended what work should have."""
        if self.limits.work is None or self.left_s > 0:
            return reason
        return OVERRAN if reason is None else f"{reason}; {OVERRAN}"

    def found(
        self,
        plan: PlanT,
        objective: int,
        bound: float | None = None,
        reason: str | None = None,
        **told: Unpack[Told],
    ) -> Solution[PlanT]:
        """A plan with its exact objective; OPTIMAL where the bound meets it."""
        return Solution(
            status=Status.OPTIMAL if bound == objective else Status.FEASIBLE,
            plan=plan,
            solver=self.solver,
            objective=objective,
            bound=bound,
            base=self.base,
            reason=reason if bound == objective else self.said(reason),
            seed=self.limits.seed,
            solve_time_s=self.elapsed_s,
            **told,
        )

    def infeasible(self, reason: str, **told: Unpack[Told]) -> Solution[Any]:
        """A proof that there is no plan; with a budget, `reason` says exactly or at least how many bytes one needs."""
        return Solution(
            status=Status.INFEASIBLE,
            plan=None,
            solver=self.solver,
            reason=reason,
            seed=self.limits.seed,
            solve_time_s=self.elapsed_s,
            **told,
        )

    def unknown(self, reason: str, bound: float | None = None, **told: Unpack[Told]) -> Solution[Any]:
        """Neither a plan nor a proof within the limits, but perhaps a bound."""
        return Solution(
            status=Status.UNKNOWN,
            plan=None,
            solver=self.solver,
            bound=bound,
            base=self.base,
            reason=self.said(reason.replace(INTERRUPTED, INTERRUPTED_EARLY)),
            seed=self.limits.seed,
            solve_time_s=self.elapsed_s,
            **told,
        )


ProblemT = TypeVar("ProblemT", contravariant=True)
AnswerT = TypeVar("AnswerT", covariant=True)


class Solver(Protocol[ProblemT, AnswerT]):
    """One method; a solver is a frozen dataclass whose fields are its parameters."""

    def solve(self, problem: ProblemT, limits: Limits, watch: Watch | None = None) -> AnswerT:
        """Answer the problem within the limits, never writing to it."""
        ...
