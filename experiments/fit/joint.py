"""Keeping, swapping and recomputing together: a plan of a graph within the budget, in bytes and in segments.

Of shapes; programs are trained under their plans (`executed.py`).
"""

from dataclasses import dataclass, field, replace

import msgspec

from experiments.fit.answer import MODELLED, Row, Where
from experiments.fit.joint_requests import blocks_made, under_joint
from experiments.fit.judge import BY_CHANCE, Budget, allocated_peak, fragmented, segments_of, where_of
from experiments.fit.trace import Kind, Trace
from solvers.ir.errors import BayplanError
from solvers.ir.hardware import Hardware
from solvers.ir.joint import JointPlan, JointProblem
from solvers.ir.solution import Limits, Solution
from solvers.joint.draft import draft_of, host_peak
from solvers.joint.given import given_of, least_budget_bytes
from solvers.joint.instances import peak_bytes
from solvers.planner import build_solver, make_problem, solve
from solvers.timeline.segments import Event, Requests, least_limit, repeated, replay
from solvers.timeline.segments.headroom import in_turns, largest_fitting

WHAT = "each output stays, leaves for the host or is computed again, decided together"
REPEATED = 3
FIRST = "greedy-joint"
REPEATS = "replayed as one step three times: the first steps are not known as planned"
NO_SESSION = "the plan is of the graph, operator by operator: a session, which plans a program's blocks, does no more"
QUICK = {"greedy-swap": FIRST, "capuchin-swap": FIRST}
"""Who plans where swaps are planned in milliseconds; else `joint` does."""


@dataclass(frozen=True)
class JointPlanned:
    """A plan for so many bytes, its requests, and the least memory that serves them."""

    solver: str
    budget_bytes: int
    problem: JointProblem
    solution: Solution[JointPlan]
    step: Requests
    events: list[Event]
    least_bytes: int


def joint_row(trace: Trace, hardware: Hardware, budget: Budget, how: str, solver: str, limits: Limits) -> Row:
    """The row of both techniques together; a machine without a host link, or a budget too small, says so."""
    blank = Row(technique="joint", what=WHAT, how=f"{how}; the plan solved and judged; reserved {MODELLED}")
    try:
        problem = joint_problem_of(trace, hardware, budget.bytes)
    except BayplanError as error:
        return replace(blank, reason=f"cannot be planned here: {error}")
    name, least = QUICK.get(solver, "joint"), least_budget_bytes(problem)
    blank = replace(blank, solver=name, least_allocated_bytes=least, margin_allocated_bytes=budget.bytes - least)
    if least > budget.bytes:
        return replace(blank, fits=False, fits_allocated=False, allocated_bytes=least)
    search = JointSearch(trace, problem, budget, limits)
    fitting = search.found(name)
    if search.smallest is None:
        return replace(blank, fits_allocated=True, reason=f"no plan was found ({search.reason}): give more time")
    return _told(replace(blank, asked=tuple(search.asked)), trace, budget, fitting, search.smallest)


@dataclass
class JointSearch:
    """Plans of one step, for as much of the budget as segments serve; `smallest` needs the least of all."""

    trace: Trace
    problem: JointProblem
    budget: Budget
    limits: Limits
    asked: list[str] = field(default_factory=list)
    smallest: JointPlanned | None = None
    reason: str | None = None

    def found(self, name: str) -> JointPlanned | None:
        """How much must be left to segments is found with the heuristic; then `name` is asked for as much."""
        between = least_budget_bytes(self.problem), self.budget.bytes
        self._planned(FIRST, between[0])
        fitting = largest_fitting(between[1], between[0], lambda size: self._fitting(FIRST, size))
        if name != FIRST:
            aim = between[1] if fitting is None else fitting[0]
            better = in_turns(aim, between, lambda size: self._fitting(name, size))
            plans = [one for one in (better, fitting) if one is not None]
            fitting = min(plans, key=lambda one: one[1].solution.objective or 0, default=None)
        return None if fitting is None else fitting[1]

    def _fitting(self, name: str, size: int) -> JointPlanned | None:
        planned = self._planned(name, size)
        if planned is None or replay(planned.events, self.budget.settings).refusal is not None:
            return None
        return planned

    def _planned(self, name: str, size: int) -> JointPlanned | None:
        if name not in self.asked:
            self.asked.append(name)
        answer = solve(build_solver(name, {}), msgspec.structs.replace(self.problem, budget_bytes=size), self.limits)
        if answer.schedule is None:
            self.reason = answer.solution.reason
            return None
        step = under_joint(self.trace, answer.schedule)
        events = repeated(step, REPEATED)
        needs = least_limit(events, self.budget.endless)
        found = JointPlanned(name, size, self.problem, answer.solution, step, events, needs)
        if self.smallest is None or needs < self.smallest.least_bytes:
            self.smallest = found
        return found


def _told(blank: Row, trace: Trace, budget: Budget, fitting: JointPlanned | None, smallest: JointPlanned) -> Row:
    shown, fits = fitting or smallest, fitting is not None
    free, within = replay(shown.events, budget.endless, moments=True), replay(shown.events, budget.settings)
    given, solution = given_of(shown.problem), shown.solution
    assert solution.plan is not None
    return replace(
        blank,
        fits=fits,
        fits_allocated=True,
        allocated_bytes=allocated_peak(shown.events),
        reserved_bytes=within.reserved_peak if fits else free.reserved_peak,
        segments=() if fits and within.retries else segments_of(free),
        least_reserved_bytes=smallest.least_bytes,
        margin_reserved_bytes=budget.bytes - smallest.least_bytes,
        least_reserved_solver=smallest.solver,
        retries=within.retries,
        host_bytes=host_peak(given, draft_of(given, solution.plan)),
        step_us=solution.objective,
        step_how=f"simulated, plan of {shown.solver}" + _proven(solution.objective, solution.bound),
        plan_budget_bytes=shown.budget_bytes,
        solver=shown.solver,
        peak=_where(trace, shown.step),
        remarks=_remarks(budget, fitting, smallest),
    )


def _remarks(budget: Budget, fitting: JointPlanned | None, smallest: JointPlanned) -> tuple[str, ...]:
    if fitting is None:
        shown = f"all but the least memory is of the plan that needs the fewest segments, by {smallest.solver}"
        return (NO_SESSION, REPEATS, shown, *fragmented(allocated_peak(smallest.events), smallest.least_bytes, budget))
    chance = (BY_CHANCE,) if budget.bytes < fitting.least_bytes else ()
    unused = budget.bytes - fitting.budget_bytes
    share = f"the plan leaves {100 * unused / budget.bytes:.1f}% of the budget to segments that blocks do not fill"
    return (NO_SESSION, REPEATS, *chance, *((share,) if unused > 0 else ()))


def _where(trace: Trace, step: Requests) -> Where:
    """Where the planned step's peak is; blocks that it takes beside the plain one's hold outputs, mostly."""
    made: dict[int, Kind] = dict.fromkeys(blocks_made(step, trace.events), "activations")
    return where_of(replace(trace, kinds={**trace.kinds, **made}), step.events, step.ops)


def _proven(objective: float | None, bound: float | None) -> str:
    if not objective or bound is None:
        return ""
    return f"; no plan is more than {100 * (objective - bound) / objective:.2f} % shorter"


def joint_problem_of(trace: Trace, hardware: Hardware, budget_bytes: int) -> JointProblem:
    """The problem whose peak with everything kept is the plain step's allocated one, other microbatches included."""
    problem = make_problem("joint", trace.graph, hardware, budget_bytes)
    assert isinstance(problem, JointProblem)
    more = allocated_peak(trace.events) - peak_bytes(problem)
    return msgspec.structs.replace(problem, static_bytes=problem.static_bytes + max(0, more))
