"""One rank's step as a report: the five lanes, as the judge counts them."""

from solvers.check.layout.floor import base_us
from solvers.check.layout.judge import device_peak
from solvers.check.layout.lanes import TaskSpan, task_spans
from solvers.ir.layout import LayoutPlan, LayoutProblem
from solvers.ir.report import Report, Span

LANES = {"compute": "compute", "net": "comm", "out": "out", "in": "in", "cpu": "host"}
"""The names of the lanes in reports."""
OF_BLOCKS = ("forward", "backward", "swap-out", "swap-in")
"""Tasks of blocks; all others are of chunks."""


def layout_report(problem: LayoutProblem, plan: LayoutPlan) -> Report:
    """The step as spans on the lanes of rank 0; memory is known as a peak only."""
    tasks = task_spans(problem, plan)
    spans = tuple(
        Span(
            action=number,
            lane=f"0.{LANES[task.lane]}",
            label=_label(problem, plan, task),
            start_us=task.start_us,
            end_us=task.end_us,
        )
        for number, task in enumerate(tasks)
    )
    return Report(
        name=problem.name,
        how="simulated",
        source="five lanes, each task as early as it may",
        makespan_us=max((task.end_us for task in tasks), default=0),
        base_us=base_us(problem),
        budget_bytes=problem.device_bytes,
        peak_bytes=device_peak(problem, plan)[0],
        spans=spans,
    )


def _label(problem: LayoutProblem, plan: LayoutPlan, task: TaskSpan) -> str:
    if task.what not in OF_BLOCKS:
        return f"{task.what} of chunk {task.number}"
    again = task.what == "backward" and plan.policies[task.number] == "checkpoint"
    return f"{'forward again and ' if again else ''}{task.what} of {problem.blocks[task.number].name}"
