"""Swapping: the least memory, and a plan that fits the budget in segments, too."""

from dataclasses import replace

from experiments.fit.answer import MODELLED, Row, Where
from experiments.fit.judge import BY_CHANCE, Budget, allocated_peak, fragmented, segments_of, where_of
from experiments.fit.swap_plans import Found, Planned, Search
from experiments.fit.trace import Kind, Trace
from solvers.ir.errors import BayplanError
from solvers.ir.hardware import Hardware
from solvers.ir.solution import Limits
from solvers.ir.swap import SwapProblem
from solvers.planner import make_problem
from solvers.swap.evaluate import least_budget
from solvers.timeline.segments import replay

WHAT = "activations leave for the host after their last use in forward and return before their first in backward"

REPEATS = (
    "replayed as one step three times, on what it finds laid side by side: the first steps are not known as planned"
)


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
    search = Search(trace, hardware, budget, least_budget(problem))
    found = search.found(solver, limits)
    if found is None:
        return replace(blank, reason=_nobody(search))
    return _told(blank, trace, budget, search.least_bytes, found)


def _told(blank: Row, trace: Trace, budget: Budget, least: int, found: Found) -> Row:
    shown = found.fitting or found.smallest
    host, rounded = shown.host_bytes
    free, within = replay(shown.events, budget.endless, moments=True), replay(shown.events, budget.settings)
    return replace(
        blank,
        fits=found.fitting is not None,
        fits_allocated=least <= budget.bytes,
        allocated_bytes=allocated_peak(shown.events),
        reserved_bytes=free.reserved_peak if found.fitting is None else within.reserved_peak,
        segments=segments_of(free) if found.fitting is None or not within.retries else (),
        least_allocated_bytes=least,
        least_reserved_bytes=found.least_reserved_bytes,
        margin_allocated_bytes=budget.bytes - least,
        margin_reserved_bytes=budget.bytes - found.least_reserved_bytes,
        retries=within.retries,
        host_bytes=host,
        host_rounded_bytes=rounded,
        least_host_bytes=max(0, max(trace.graph.memory_bytes) - shown.problem.budget_bytes),
        step_us=shown.step_us,
        step_how=f"simulated, plan of {shown.solver}",
        plan_budget_bytes=shown.problem.budget_bytes,
        solver=shown.solver,
        asked=found.asked,
        least_reserved_solver=found.smallest.solver,
        peak=_where(trace, shown),
        remarks=_remarks(found, budget, least),
    )


def _nobody(search: Search) -> str:
    asked = ", ".join(search.asked)
    return (
        f"no plan was found even for {search.least_bytes} bytes, in which one exists (asked: {asked}): give more time"
    )


def _remarks(found: Found, budget: Budget, least: int) -> tuple[str, ...]:
    if found.fitting is None:
        of = found.smallest.solver
        shown = f"peaks, host memory and step are those of the plan that needs the fewest segments, by {of}"
        return (shown, *fragmented(least, found.least_reserved_bytes, budget))
    remarks = [] if found.fitting.from_the_first else [REPEATS]
    remarks += [BY_CHANCE] if budget.bytes < found.least_reserved_bytes else []
    unused = budget.bytes - found.fitting.problem.budget_bytes
    if unused > 0:
        share = 100 * unused / budget.bytes
        remarks.append(f"the plan leaves {share:.1f}% of the budget to segments that blocks do not fill")
    return tuple(remarks)


def _where(trace: Trace, planned: Planned) -> Where:
    """Where the peak of the planned step is; blocks that swap-ins took hold activations."""
    known, step = {event.block for event in trace.events}, planned.step
    returned: dict[int, Kind] = {
        event.block: "activations" for event in planned.step.events if event.block not in known
    }
    return where_of(replace(trace, kinds={**trace.kinds, **returned}), step.events, step.ops)
