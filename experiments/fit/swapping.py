"""Swapping: the least memory, and a plan that fits the budget in segments, too."""

from dataclasses import dataclass, replace

from experiments.fit.answer import MODELLED, Row, Where
from experiments.fit.judge import Budget, allocated_peak, where_of
from experiments.fit.trace import Kind, Trace
from solvers.ir.errors import BayplanError
from solvers.ir.hardware import Hardware
from solvers.ir.schedule import Schedule
from solvers.ir.solution import Limits
from solvers.ir.swap import SwapPlan, SwapProblem
from solvers.planner import build_solver, make_problem, solve
from solvers.swap.evaluate import least_budget
from solvers.timeline import simulate
from solvers.timeline.segments import Requests, least_limit, repeated, replay, under_schedule
from solvers.timeline.segments.headroom import in_turns, largest_fitting

WHAT = "activations leave for the host after their last use in forward and return before their first in backward"
QUICK = "greedy-swap"
STEPS = 3
"""How often the planned step is replayed: what the first one leaves is what the next ones find."""


@dataclass(frozen=True)
class Planned:
    """A plan in a budget of its own: its schedule, and the step's requests under it."""

    solver: str
    problem: SwapProblem
    schedule: Schedule
    step: Requests

    @property
    def host_bytes(self) -> tuple[int, int]:
        """The most bytes on the host at once: from a swap-out's op to its swap-in's; and with blocks of powers of two.

        A returning tensor counts to the end of the op before which its swap-in is issued.
        """
        change: dict[int, list[int]] = {}
        for action in self.schedule.actions:
            if action.op is not None and action.do in ("swap_out", "swap_in") and action.bytes:
                at = action.op if action.do == "swap_out" else action.op + 1
                sign = 1 if action.do == "swap_out" else -1
                counted = change.setdefault(at, [0, 0])
                counted[0] += sign * action.bytes
                counted[1] += sign * (1 << (action.bytes - 1).bit_length())
        level, most = [0, 0], [0, 0]
        for at in sorted(change):
            level = [level[0] + change[at][0], level[1] + change[at][1]]
            most = [max(most[0], level[0]), max(most[1], level[1])]
        return most[0], most[1]


def swap_row(trace: Trace, hardware: Hardware, budget: Budget, how: str, solver: str, limits: Limits) -> Row:
    """The row of swapping; a graph in which nothing can leave, or a machine without a host link, says so."""
    blank = Row(technique="swap", what=WHAT, how=f"{how}; swaps simulated; reserved {MODELLED}")
    try:
        problem = make_problem("swap", trace.graph, hardware, budget.bytes)
    except BayplanError as error:
        return replace(blank, reason=f"cannot be planned here: {error}")
    assert isinstance(problem, SwapProblem)
    if not problem.tensors:
        return replace(blank, reason="no tensor waits between the forward and the backward pass, so nothing can leave")
    least = least_budget(problem)
    floor = _planned(trace, hardware, least, QUICK, limits)
    events = repeated(floor.step, STEPS)
    least_reserved = least_limit(events, budget.endless)
    found = _fitting(trace, hardware, budget, (solver, limits), least)
    shown = found or floor
    host, rounded = shown.host_bytes
    report = simulate(shown.problem, shown.schedule)
    held = repeated(shown.step, STEPS)
    within = replay(held, budget.settings)
    return replace(
        blank,
        fits=found is not None,
        fits_allocated=least <= budget.bytes,
        allocated_bytes=allocated_peak(held),
        reserved_bytes=replay(held, budget.endless).reserved_peak if found is None else within.reserved_peak,
        least_allocated_bytes=least,
        least_reserved_bytes=least_reserved,
        margin_allocated_bytes=budget.bytes - least,
        margin_reserved_bytes=budget.bytes - least_reserved,
        retries=within.retries,
        host_bytes=host,
        host_rounded_bytes=rounded,
        least_host_bytes=max(0, max(trace.graph.memory_bytes) - shown.problem.budget_bytes),
        step_us=round(report.makespan_us),
        step_how=f"simulated, plan of {shown.solver}",
        plan_budget_bytes=shown.problem.budget_bytes,
        peak=_where(trace, shown),
        remarks=_remarks(found, budget),
    )


def _remarks(found: Planned | None, budget: Budget) -> tuple[str, ...]:
    if found is None:
        return ("peaks, host memory and step are those of the plan with the least device memory",)
    unused = budget.bytes - found.problem.budget_bytes
    if unused <= 0:
        return ()
    return (f"the plan leaves {100 * unused / budget.bytes:.1f}% of the budget to segments that blocks do not fill",)


def _fitting(trace: Trace, hardware: Hardware, budget: Budget, by: tuple[str, Limits], least: int) -> Planned | None:
    """A plan that fits in segments and leaves them as little of the budget as the search finds; None where none does.

    How much must be left is found with the quick heuristic; then the solver that was asked for has a few tries from
    there on, and the shorter step is taken.
    """
    solver, limits = by

    def fitting(solver: str, size: int) -> Planned | None:
        planned = _planned(trace, hardware, size, solver, limits)
        return planned if _fits(planned, budget) else None

    found = largest_fitting(budget.bytes, least, lambda size: fitting(QUICK, size))
    if found is None or solver == QUICK:
        return None if found is None else found[1]
    other = in_turns(found[0], (least, budget.bytes), lambda size: fitting(solver, size)) or found
    return min(other[1], found[1], key=lambda one: simulate(one.problem, one.schedule).makespan_us)


def _fits(planned: Planned, budget: Budget) -> bool:
    return replay(repeated(planned.step, STEPS), budget.settings).refusal is None


def _planned(trace: Trace, hardware: Hardware, budget_bytes: int, solver: str, limits: Limits) -> Planned:
    problem = make_problem("swap", trace.graph, hardware, budget_bytes)
    assert isinstance(problem, SwapProblem)
    answer = solve(build_solver(solver, {}), problem, limits)
    if answer.schedule is None:
        raise BayplanError(f"{solver} found no plan within {budget_bytes} bytes: raise --time-limit, or the budget")
    assert isinstance(answer.solution.plan, SwapPlan)
    return Planned(solver, problem, answer.schedule, under_schedule(trace.step, answer.schedule))


def _where(trace: Trace, planned: Planned) -> Where:
    """Where the peak of the planned step is; blocks that swap-ins took hold activations."""
    known, step = {event.block for event in trace.events}, planned.step
    returned: dict[int, Kind] = {
        event.block: "activations" for event in planned.step.events if event.block not in known
    }
    return where_of(replace(trace, kinds={**trace.kinds, **returned}), step.events, step.ops)
