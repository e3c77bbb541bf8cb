"""What memory costs: the step over the budget for `greedy-joint` and `joint`, and what no plan can be below."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from typing import Any

from msgspec.structs import replace

from experiments.commands.interrupts import until_asked
from solvers.check.plan import judge_of
from solvers.ir.fields import LARGEST
from solvers.ir.joint import JointPlan, JointProblem
from solvers.ir.solution import Limits
from solvers.joint.draft import measure
from solvers.joint.given import given_of, least_budget_bytes
from solvers.joint.instances import at_position, peak_bytes
from solvers.joint.singles import recompute_only
from solvers.planner import build_solver

Best = tuple[int | None, int | None]
"""A step in µs and the budget that its plan was made for; None where there is no plan."""
FORMAT = "bayplan-pareto/1"
FACTORS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16)
"""Of the link's rate: where swapping begins to pay is looked for at these."""
LONG, JUDGED = 1_500, 2
"""Ops from which on a step is long, and plans that are then judged again at the next budget or rate."""
SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)
"""Of a sample's tokens."""


@dataclass(frozen=True)
class Point:
    """A budget and the steps in µs: None where no plan was found; `bound_us`: no plan's step at this budget is below.

    `greedy_from`, `joint_from`: the budget whose plan it is, itself or a smaller one.
    """

    budget_bytes: int
    greedy_us: int | None
    joint_us: int | None
    bound_us: float
    greedy_from: int | None
    joint_from: int | None


@dataclass(frozen=True)
class Crossing:
    """A step at a budget by recomputation alone, and by both, at a link's rate or a length."""

    value: int
    recompute_us: int | None
    both_us: int | None

    @property
    def pays(self) -> bool:
        """Whether swapping, too, beats recomputation alone."""
        return self.both_us is not None and (self.recompute_us is None or self.both_us < self.recompute_us)


@dataclass(frozen=True)
class Pareto:
    """All that one call found; what was not whole when Ctrl-C came (`interrupted`), or the time was up, is left out."""

    name: str
    hardware: str
    base_us: int
    static_bytes: int
    least_budget_bytes: int
    peak_bytes: int
    points: tuple[Point, ...]
    position: float
    rates: tuple[Crossing, ...]
    lengths: tuple[Crossing, ...]
    interrupted: bool = False
    out_of_time: bool = False

    def told(self) -> dict[str, Any]:
        """As JSON."""
        asked = {
            "swapping_pays_from_bytes_per_s": self.rates,
            "swapping_pays_from_sequence": self.lengths,
        }
        pays = {
            name: first_paying(ones)
            for name, ones in asked.items()
            if ones or not (self.interrupted or self.out_of_time)
        }
        return {"format": FORMAT, **asdict(self), **pays}


def first_paying(crossings: Sequence[Crossing]) -> int | None:
    """The least value from which on swapping pays at every one; None where it does not at the largest."""
    found = None
    for crossing in reversed(crossings):
        if not crossing.pays:
            break
        found = crossing.value
    return found


@dataclass(frozen=True)
class Allowed:
    """What each planner is allowed, and when all of them must have ended (`time.perf_counter`)."""

    limits: Limits
    until: float = math.inf

    @property
    def over(self) -> bool:
        """Whether no planner is to begin any more."""
        return time.perf_counter() >= self.until

    def among(self, parts: float) -> Limits:
        """The limits of one planner, where so many are to come."""
        left = max(0.0, self.until - time.perf_counter()) / parts
        return replace(self.limits, time_s=min(self.limits.time_s, left))


def curve(problem: JointProblem, count: int, allowed: Allowed, later: int = 0) -> tuple[Point, ...]:
    """The points at `count` budgets from the least to everything kept, monotone by proof.

    A plan for a smaller budget is valid at a larger one and ends no later there; the judge says when. A bound for a
    larger budget holds for a smaller one. `later`: so many planners are to come behind them.
    """
    budgets = sorted({at_position(problem, place / (count - 1)).budget_bytes for place in range(count)})
    greedy: list[tuple[int, JointPlan]] = []
    joint: list[tuple[int, JointPlan]] = []

    def point(number: int) -> tuple[float, tuple[int, Best, Best]]:
        budget, left = budgets[number], 3 * (len(budgets) - number)  # joint's turn is twice as long
        at = replace(problem, budget_bytes=budget)
        for name, plans, parts in (("greedy-joint", greedy, left), ("joint", joint, (left - 1) / 2)):
            answer = build_solver(name, {}).solve(at, allowed.among(parts + later))
            if answer.plan is not None:
                plans.append((budget, answer.plan))
        by_greedy, by_joint = _best(at, greedy), _best(at, joint)
        both = min((best for best in (by_greedy, by_joint) if best[0] is not None), default=(None, None))
        return float(answer.bound or 0.0), (budget, by_greedy, both)  # joint's bound

    found = until_asked(partial(point, number) for number in range(len(budgets)) if not (number and allowed.over))
    return tuple(
        Point(budget, one[0], both[0], max(bound for bound, _ in found[number:]), one[1], both[1])
        for number, (_, (budget, one, both)) in enumerate(found)
    )


def _best(problem: JointProblem, plans: list[tuple[int, JointPlan]]) -> Best:
    """The least step among these plans at the problem's budget, by the judge, and the budget that it was made for.

    Of long steps, which the judge follows for a second, only the best plans stay among them.
    """
    judge = judge_of(problem.KIND).decision
    judged = [(judge(problem, plan), budget, plan) for budget, plan in plans]
    valid = [(verdict.objective_us, budget, plan) for verdict, budget, plan in judged if verdict.clean]
    known = sorted(((step, budget, plan) for step, budget, plan in valid if step is not None), key=lambda one: one[:2])
    if len(problem.ops) > LONG:
        plans[:] = [(budget, plan) for _, budget, plan in known[:JUDGED]]
    return known[0][:2] if known else (None, None)


def rate_crossings(problem: JointProblem, position: float, allowed: Allowed, later: int = 0) -> tuple[Crossing, ...]:
    """Both techniques beside recomputation alone, over the link's rate; a plan for a slower link holds for a faster.

    At that position of the problem's budgets.
    """
    placed, link = cache(lambda: at_position(problem, position)), problem.link
    alone = cache(lambda: _alone(placed(), allowed.among(len(FACTORS) + 1 + later)))
    plans: list[tuple[int, JointPlan]] = []

    def crossing(number: int) -> Crossing:
        recomputed, factor = alone(), FACTORS[number]
        rates = [max(1, min(LARGEST, round(rate * factor))) for rate in (link.out_bytes_per_s, link.in_bytes_per_s)]
        at = replace(placed(), link=replace(link, out_bytes_per_s=rates[0], in_bytes_per_s=rates[1]))
        answer = build_solver("greedy-joint", {}).solve(at, allowed.among(len(FACTORS) - number + later))
        if answer.plan is not None:
            plans.append((rates[0], answer.plan))
        return Crossing(rates[0], recomputed, _best(at, plans)[0])

    return _whole(
        until_asked(partial(crossing, number) for number in range(len(FACTORS)) if not allowed.over), len(FACTORS)
    )


def length_crossings(
    make: Callable[[int], JointProblem], sequence: int, position: float, allowed: Allowed
) -> tuple[Crossing, ...]:
    """The same over the tokens of a sample, each length at that position of its own budgets."""

    def crossing(number: int) -> Crossing:
        length, left = max(1, round(sequence * SHARES[number])), 2 * (len(SHARES) - number)
        problem = at_position(make(length), position)
        answer = build_solver("greedy-joint", {}).solve(problem, allowed.among(left))
        return Crossing(length, _alone(problem, allowed.among(left - 1)), answer.objective)

    return _whole(
        until_asked(partial(crossing, number) for number in range(len(SHARES)) if not allowed.over), len(SHARES)
    )


def _whole(found: tuple[Crossing, ...], count: int) -> tuple[Crossing, ...]:
    """None of them where Ctrl-C left some out: from where on swapping pays is said of all."""
    return found if len(found) == count else ()


def _alone(problem: JointProblem, limits: Limits) -> int | None:
    """The step with recomputation alone, by `opt`; None where it finds no plan."""
    given = given_of(problem)
    draft = recompute_only(given, limits)
    if draft is None:
        return None
    measured = measure(given, draft)
    return None if measured.violation is not None else measured.objective_us


def pareto(
    problem: JointProblem,
    hardware: str,
    count: int,
    position: float,
    limits: Limits,
    lengths: Callable[[Allowed], tuple[Crossing, ...]] | None = None,
    time_s: float = math.inf,
) -> Pareto:
    """Everything of one step; where Ctrl-C came (`Interrupts`), what was whole until then.

    `limits` are each planner's; all end within `time_s`, shared out among them.
    """
    allowed = Allowed(limits, time.perf_counter() + time_s)
    last = 0 if lengths is None else 2 * len(SHARES)
    points = curve(problem, count, allowed, len(FACTORS) + 1 + last)
    rates = rate_crossings(problem, position, allowed, last)
    crossed = () if lengths is None else lengths(allowed)
    return Pareto(
        name=problem.name,
        hardware=hardware,
        base_us=sum(op.time_us for op in problem.ops),
        static_bytes=problem.static_bytes,
        least_budget_bytes=least_budget_bytes(problem),
        peak_bytes=peak_bytes(problem),
        points=points,
        position=position,
        rates=rates,
        lengths=crossed,
        out_of_time=not rates or (lengths is not None and not crossed),
    )
