"""`bayplan simulate`: the timeline of a plan, without running it."""

from pathlib import Path

import click

from experiments.commands.kinds import face_of
from experiments.commands.kinds.face import simulated
from experiments.commands.outputs import writable
from experiments.commands.show import Figures, print_figures, show_us
from solvers.ir.amounts import show_bytes
from solvers.ir.codec import PlanFile, read_plan, read_problem, write_json
from solvers.ir.problem import Plan, Problem
from solvers.ir.report import Report

HELP = """Simulate PLAN on the links and the times that PROBLEM states: makespan, peak, stalls by cause.

Of a replan problem: the transition and the first step after it, node by node. Of a layout problem: one rank's five
lanes. Nothing is executed. Exit code 1: the
plan breaks its problem (`bayplan check` says the same), or has no decision."""


@click.command("simulate", help=HELP)
@click.argument("problem", type=click.Path(path_type=Path))
@click.argument("plan", type=click.Path(path_type=Path))
@click.option(
    "--trace", type=click.Path(path_type=Path), metavar="T.json", help="Write a trace for Perfetto or Chrome."
)
def command(problem: Path, plan: Path, trace: Path | None) -> int:
    """See HELP."""
    from solvers.timeline import chrome_trace

    asked, sha256 = read_problem(problem)
    answer = read_plan(plan)
    place = None if trace is None else writable(trace, "--trace", inputs=(problem, plan))
    decision = _valid(asked, answer, sha256)
    if decision is None:
        return 1
    report, schedule, figures = simulated(face_of(asked.KIND), asked, decision, _figures)
    if place is not None:
        write_json(place, chrome_trace(report, schedule))
    how = ("how", f"{report.how} from {problem}, kind {asked.KIND}")
    print_figures(asked.name, [how, *figures, *([] if trace is None else [("trace", str(trace))])])
    return 0


def _valid(problem: Problem, answer: PlanFile, sha256: str) -> Plan | None:
    """The decision, or None after telling why it cannot be simulated."""
    from solvers.check import check_plan

    violations = check_plan(problem, answer, sha256).violations
    for violation in violations:
        click.echo(f"violation: {' '.join(violation.split())}")
    return None if violations else answer.plan()


def _figures(report: Report) -> Figures:
    figures: Figures = [
        ("makespan", show_us(report.makespan_us)),
        ("base", show_us(report.base_us)),
        ("peak", f"{show_bytes(report.peak_bytes)} at {show_us(report.peak_at_us)}"),
        ("budget", show_bytes(report.budget_bytes)),
    ]
    figures += [(f"stall, {cause}", show_us(time)) for cause, time in sorted(report.stall_us.items())]
    return figures if report.launch_us is None else [*figures, ("launches", show_us(report.launch_us))]
