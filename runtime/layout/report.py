"""What a layout was decided to be, what it promised, and what the last step took."""

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.device import memory_stats
from runtime.layout.deciding import Decided
from runtime.layout.log import REMEDY, Log
from runtime.layout.store import Store
from runtime.layout.updates import Updates
from solvers.check.layout.lanes import LANES, TaskSpan, end_us
from solvers.ir.amounts import show_bytes
from solvers.ir.layout import LayoutPlan, LayoutProblem
from solvers.ir.report import Report
from solvers.ir.schedule import Schedule
from solvers.planner import lower_plan
from solvers.timeline import simulate
from solvers.timeline.layout_launched import LayoutCosts, predict_layout


@dataclass(frozen=True)
class LayoutReport:
    """A layout and its worth.

    `solver`, `bound_us` and `gap` are None where the plan was given or nothing is proven; `reason` is the solver's.
    `planned_step_us` is the plan's objective, `predicted_step_us` what the executor takes for it, launches and single
    copies counted where the device tells what they cost. `peak_bytes` is the device's since its statistics were reset;
    `step_us` and `spans` are those of the last whole step, None and empty before. `host_bytes` are the page-locked
    masters and gradients, `predicted_host_bytes` all that the plan counts of the host, the optimizer's states with
    them. `predicted` is the predicted step on the lanes of schedules. `departures` are steps that were not the planned
    one. `again` says why each layout after the first one was made; since the last one peaks count.
    """

    problem: LayoutProblem
    plan: LayoutPlan
    solver: str | None
    bound_us: float | None
    gap: float | None
    reason: str | None
    planned_step_us: int
    predicted_step_us: float
    step_us: float | None
    predicted_peak_bytes: int
    peak_bytes: int
    predicted_host_bytes: int
    host_bytes: int
    predicted: Report
    predicted_spans: tuple[TaskSpan, ...]
    spans: tuple[TaskSpan, ...]
    departures: int
    overlapping: bool
    why_not_overlapping: str | None
    budget_bytes: int = 0
    again: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Sequence[str]:
        plan, problem = self.plan, self.problem
        counts = ", ".join(f"{plan.policies.count(policy)} {policy}" for policy in ("keep", "swap", "checkpoint"))
        why = "" if self.why_not_overlapping is None else f" ({self.why_not_overlapping})"
        step = "no step yet" if self.step_us is None else f"{self.step_us:.0f} µs"
        bound = "" if self.bound_us is None else f", no layout below {self.bound_us:.0f}"
        solver = "given" if self.solver is None else f"of {self.solver}"
        above = self.peak_bytes > self.budget_bytes
        over = f", above the budget of {self.budget_bytes}: {REMEDY}" if above else ""
        return [
            f"plan          {solver}" + ("" if self.reason is None else f" ({self.reason})"),
            f"chunks        {len(problem.chunks)} of {show_bytes(problem.chunk_bytes)}: {len(plan.persistent)} stay, "
            f"{plan.buffers} buffers for the others",
            f"blocks        {counts}",
            f"device peak   {self.peak_bytes} bytes, predicted {self.predicted_peak_bytes}{over}",
            f"step          {step}, predicted {self.predicted_step_us:.0f}, planned {self.planned_step_us}{bound}",
            f"host          {self.host_bytes} bytes page-locked; with states {self.predicted_host_bytes} predicted",
            f"updates       {'beside' if self.overlapping else 'after'} backward{why}",
            f"departures    {self.departures}",
            *(f"made again    {why}" for why in self.again),
        ]


def predicted_report(decided: Decided, costs: LayoutCosts | None) -> tuple[Report, Schedule]:
    """The step as the executor carries it out, where its costs are known, else as planned; and its schedule."""
    problem, plan = decided.problem, decided.plan
    schedule = lower_plan(problem, plan)
    report = simulate(problem, schedule) if costs is None else predict_layout(problem, schedule, costs)
    return report, schedule


def _tasks(problem: LayoutProblem, report: Report, schedule: Schedule) -> tuple[TaskSpan, ...]:
    """The same by tasks: what takes time, lane by lane; what is computed again belongs to its backward."""
    spans = {span.action: span for span in report.spans}
    begins = {action.op: spans[action.id].start_us for action in schedule.actions if action.do == "recompute"}
    found = []
    for action in (one for one in schedule.actions if one.id in spans):
        span, what = spans[action.id], _WHAT.get((action.do, action.lane.partition(".")[2]))
        start = span.start_us
        if what == "pass":
            forward = (action.op or 0) < len(problem.blocks)
            what, start = ("forward", start) if forward else ("backward", begins.get(action.op, start))
        if what is not None and span.end_us > start:
            number, lane = int(str(action.data[0]).split()[1]), action.lane.partition(".")[2].replace("host", "cpu")
            found.append(TaskSpan(lane, what, number, round(start), round(span.end_us)))
    return tuple(sorted(found, key=lambda one: (LANES.index(one.lane), one.start_us)))


_WHAT = {
    ("compute", "compute"): "pass",
    ("load", "in"): "load",
    ("swap_in", "in"): "swap-in",
    ("swap_out", "out"): "swap-out",
    ("evict", "out"): "offload",
    ("update", "host"): "cpu-update",
    ("update", "compute"): "device-update",
}
"""What tasks are called, by action and lane."""


def layout_report(
    decided: Decided, costs: LayoutCosts | None, store: Store, updates: Updates, log: Log, again: tuple[str, ...]
) -> LayoutReport:
    """The report of a wrapped model, whose layout was made again for these reasons."""
    solution, problem, plan = decided.solution, decided.problem, decided.plan
    predicted, schedule = predicted_report(decided, costs)
    pinned = [one for chunk in store.chunks if not chunk.persistent for one in (chunk.host, chunk.gradients)]
    away = [chunk.host_bytes for number, chunk in enumerate(problem.chunks) if number not in plan.persistent]
    pairs = zip(problem.blocks, plan.policies, strict=True)
    swapped = sum(block.activation_bytes for block, policy in pairs if policy == "swap")
    return LayoutReport(
        problem=problem,
        plan=plan,
        solver=None if solution is None else solution.solver,
        bound_us=None if solution is None else solution.bound,
        gap=None if solution is None else solution.gap,
        reason=None if solution is None else solution.reason,
        planned_step_us=end_us(problem, plan),
        predicted_step_us=predicted.makespan_us,
        step_us=log.step_us(),
        predicted_peak_bytes=decided.peak_bytes(),
        peak_bytes=memory_stats(store.device).peak_bytes,
        predicted_host_bytes=sum(away) + swapped,
        host_bytes=sum(one.nbytes for one in pinned if one is not None),
        predicted=predicted,
        predicted_spans=_tasks(problem, predicted, schedule),
        spans=log.spans(),
        departures=store.departures,
        overlapping=updates.overlapping,
        why_not_overlapping=updates.reason,
        budget_bytes=log.budget_bytes,
        again=again,
    )
