"""`bayplan simulate`: the timeline of a plan, without running it."""

from pathlib import Path
from typing import Any

import click
import msgspec

from experiments.commands.kinds import face_of
from experiments.commands.kinds.face import simulated
from experiments.commands.show import Figures, print_figures, show_us
from experiments.commands.streams import (
    destination,
    is_stream,
    place_of,
    print_json,
    read_plan_at,
    read_problem_at,
    require_one_stdin,
    require_one_stdout,
    write_at,
)
from solvers.ir.amounts import show_bytes
from solvers.ir.codec import PlanFile
from solvers.ir.problem import Problem
from solvers.ir.report import Report

HELP = """Simulate PLAN on the links and the times that PROBLEM states: makespan, peak, stalls by cause.

Of a replan problem: the transition and the first step after it, node by node. Of a layout problem: one rank's five
lanes. Nothing is executed. Exit code 1: the plan breaks its problem (`bayplan check` says the same), or has no
decision. PROBLEM or PLAN may be -, which is stdin; --trace - prints the trace and nothing else."""


@click.command("simulate", help=HELP)
@click.argument("problem", type=click.Path(path_type=Path))
@click.argument("plan", type=click.Path(path_type=Path))
@click.option(
    "--trace", type=click.Path(path_type=Path), metavar="T.json", help="Write a trace for Perfetto or Chrome."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object in place of figures.")
def command(problem: Path, plan: Path, trace: Path | None, as_json: bool) -> int:
    """See HELP."""
    from solvers.timeline import chrome_trace

    require_one_stdin(problem, plan)
    require_one_stdout(trace, as_json, "--trace")
    asked, sha256 = read_problem_at(problem)
    answer = read_plan_at(plan)
    place = None if trace is None else destination(trace, "--trace", inputs=(problem, plan))
    violations = _violations(asked, answer, sha256)
    decision = answer.plan()
    if violations or decision is None:
        _tell(asked, violations, as_json)
        return 1
    report, schedule, figures = simulated(face_of(asked.KIND), asked, decision, _figures)
    if place is not None:
        write_at(place, chrome_trace(report, schedule))
    if as_json:
        print_json({"problem": asked.name, "kind": asked.KIND, "violations": [], **_told(report)})
    elif not is_stream(trace):
        how = ("how", f"{report.how} from {place_of(problem)}, kind {asked.KIND}")
        print_figures(asked.name, [how, *figures, *([] if trace is None else [("trace", str(trace))])])
    return 0


def _violations(problem: Problem, answer: PlanFile, sha256: str) -> list[str]:
    """What keeps the plan from being simulated, a line each."""
    from solvers.check import check_plan

    return [" ".join(violation.split()) for violation in check_plan(problem, answer, sha256).violations]


def _tell(problem: Problem, violations: list[str], as_json: bool) -> None:
    """Why there is nothing to simulate."""
    if as_json:
        print_json({"problem": problem.name, "kind": problem.KIND, "violations": violations})
        return
    for violation in violations:
        click.echo(f"violation: {violation}")


def _told(report: Report) -> dict[str, Any]:
    """The report as JSON, but for what each action and each moment was (`--trace` tells that)."""
    raw: dict[str, Any] = msgspec.to_builtins(report)
    return {name: value for name, value in raw.items() if name not in ("name", "spans", "memory")}


def _figures(report: Report) -> Figures:
    figures: Figures = [
        ("makespan", show_us(report.makespan_us)),
        ("base", show_us(report.base_us)),
        ("peak", f"{show_bytes(report.peak_bytes)} at {show_us(report.peak_at_us)}"),
        ("budget", show_bytes(report.budget_bytes)),
    ]
    figures += [(f"stall, {cause}", show_us(time)) for cause, time in sorted(report.stall_us.items())]
    return figures if report.launch_us is None else [*figures, ("launches", show_us(report.launch_us))]
