"""What `bayplan simulate` shows of a layout plan: the five lanes of its schedule, one rank's step."""

from msgspec.structs import replace

from experiments.commands.kinds.face import Shown
from experiments.commands.show import Figures, show_share, show_us
from solvers.ir.amounts import show_bytes
from solvers.ir.layout import POLICIES, LayoutPlan, LayoutProblem
from solvers.ir.report import Report

LANES = ("compute", "comm", "out", "in", "host")
"""The lanes of one rank, in the order in which they are told of."""


def simulate(problem: LayoutProblem, plan: LayoutPlan) -> Shown:
    """One rank's step."""
    from solvers.check.layout.floor import base_us
    from solvers.planner import simulate_plan

    report, schedule = simulate_plan(problem, plan)
    report = replace(report, base_us=base_us(problem))
    return Shown(report, schedule, lane_figures(problem, plan, report))


def lane_figures(problem: LayoutProblem, plan: LayoutPlan, report: Report) -> Figures:
    """The decision, the step, memory, and how long each lane is busy."""
    from solvers.check.layout.judge import device_peak, host_bytes

    blocks = ", ".join(f"{policy} {plan.policies.count(policy)}" for policy in POLICIES)
    chunks = f"persistent {len(plan.persistent)}, buffers {plan.buffers} for {len(problem.chunks)} chunks"
    figures: Figures = [
        ("plan", f"{blocks}; {chunks}"),
        ("makespan", show_us(report.makespan_us)),
        ("base", show_us(report.base_us)),
        ("peak", f"{show_bytes(report.peak_bytes)} in the {device_peak(problem, plan)[1]}"),
        ("budget", show_bytes(problem.device_bytes)),
        ("host memory", f"{show_bytes(host_bytes(problem, plan))} of {show_bytes(problem.host_bytes)}"),
    ]
    for lane in LANES:
        busy = sum(round(span.end_us - span.start_us) for span in report.spans if span.lane == f"0.{lane}")
        share = show_share(busy / report.makespan_us if report.makespan_us else None)
        figures.append((f"{lane} is busy", f"{show_us(busy)}, {share} of the time"))
    return figures
