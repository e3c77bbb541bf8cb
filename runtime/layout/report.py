"""What a layout was decided to be, what it promised, and what the last step took."""

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.device import memory_stats
from runtime.layout.deciding import Decided
from runtime.layout.log import Log
from runtime.layout.store import Store
from runtime.layout.updates import Updates
from solvers.check.layout.lanes import TaskSpan, end_us, task_spans
from solvers.ir.amounts import show_bytes
from solvers.ir.layout import LayoutPlan, LayoutProblem


@dataclass(frozen=True)
class LayoutReport:
    """A layout and its worth.

    `solver`, `bound_us` and `gap` are None where the plan was given or nothing is proven; `reason` is the solver's.
    `peak_bytes` is the device's since its statistics were reset; `step_us` and `spans` are those of the last whole
    step, None and empty before. `host_bytes` are the page-locked masters and gradients, `predicted_host_bytes` all that
    the plan counts of the host, the optimizer's states with them. `departures` are steps that were not the planned one.
    """

    problem: LayoutProblem
    plan: LayoutPlan
    solver: str | None
    bound_us: float | None
    gap: float | None
    reason: str | None
    predicted_step_us: int
    step_us: float | None
    predicted_peak_bytes: int
    peak_bytes: int
    predicted_host_bytes: int
    host_bytes: int
    predicted_spans: tuple[TaskSpan, ...]
    spans: tuple[TaskSpan, ...]
    departures: int
    overlapping: bool
    why_not_overlapping: str | None

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Sequence[str]:
        plan, problem = self.plan, self.problem
        counts = ", ".join(f"{plan.policies.count(policy)} {policy}" for policy in ("keep", "swap", "checkpoint"))
        why = "" if self.why_not_overlapping is None else f" ({self.why_not_overlapping})"
        step = "no step yet" if self.step_us is None else f"{self.step_us:.0f} µs"
        bound = "" if self.bound_us is None else f", no layout below {self.bound_us:.0f}"
        solver = "given" if self.solver is None else f"of {self.solver}"
        return [
            f"plan          {solver}" + ("" if self.reason is None else f" ({self.reason})"),
            f"chunks        {len(problem.chunks)} of {show_bytes(problem.chunk_bytes)}: {len(plan.persistent)} stay, "
            f"{plan.buffers} buffers for the others",
            f"blocks        {counts}",
            f"device peak   {self.peak_bytes} bytes, predicted {self.predicted_peak_bytes}",
            f"step          {step}, predicted {self.predicted_step_us}{bound}",
            f"host          {self.host_bytes} bytes page-locked; with states {self.predicted_host_bytes} predicted",
            f"updates       {'beside' if self.overlapping else 'after'} backward{why}",
            f"departures    {self.departures}",
        ]


def layout_report(decided: Decided, store: Store, updates: Updates, log: Log) -> LayoutReport:
    """The report of a wrapped model."""
    solution, problem, plan = decided.solution, decided.problem, decided.plan
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
        predicted_step_us=end_us(problem, plan),
        step_us=log.step_us(),
        predicted_peak_bytes=decided.peak_bytes(),
        peak_bytes=memory_stats(store.device).peak_bytes,
        predicted_host_bytes=sum(away) + swapped,
        host_bytes=sum(one.nbytes for one in pinned if one is not None),
        predicted_spans=tuple(task_spans(problem, plan)),
        spans=log.spans(),
        departures=store.departures,
        overlapping=updates.overlapping,
        why_not_overlapping=updates.reason,
    )
