"""What `bayplan simulate` shows of a layout plan: the five lanes of one rank's step, as the judge counts them."""

from experiments.commands.show import show_share, show_us
from solvers.check.layout import device_peak, host_bytes
from solvers.check.layout_floor import base_us
from solvers.check.layout_lanes import TaskSpan, task_spans
from solvers.ir.amounts import show_bytes
from solvers.ir.layout import POLICIES, LayoutPlan, LayoutProblem
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


def lane_figures(problem: LayoutProblem, plan: LayoutPlan, report: Report) -> list[tuple[str, str | None]]:
    """The decision, the step, memory, and how long each lane is busy."""
    blocks = ", ".join(f"{policy} {plan.policies.count(policy)}" for policy in POLICIES)
    chunks = f"persistent {len(plan.persistent)}, buffers {plan.buffers} for {len(problem.chunks)} chunks"
    figures: list[tuple[str, str | None]] = [
        ("plan", f"{blocks}; {chunks}"),
        ("makespan", show_us(report.makespan_us)),
        ("base", show_us(report.base_us)),
        ("peak", f"{show_bytes(report.peak_bytes)} in the {device_peak(problem, plan)[1]}"),
        ("budget", show_bytes(problem.device_bytes)),
        ("host memory", f"{show_bytes(host_bytes(problem, plan))} of {show_bytes(problem.host_bytes)}"),
    ]
    for lane in LANES.values():
        busy = sum(round(span.end_us - span.start_us) for span in report.spans if span.lane == f"0.{lane}")
        share = show_share(busy / report.makespan_us if report.makespan_us else None)
        figures.append((f"{lane} is busy", f"{show_us(busy)}, {share} of the time"))
    return figures


def _label(problem: LayoutProblem, plan: LayoutPlan, task: TaskSpan) -> str:
    if task.what not in OF_BLOCKS:
        return f"{task.what} of chunk {task.number}"
    again = task.what == "backward" and plan.policies[task.number] == "checkpoint"
    return f"{'forward again and ' if again else ''}{task.what} of {problem.blocks[task.number].name}"
