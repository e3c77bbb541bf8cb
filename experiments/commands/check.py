"""`bayplan check`: an independent verdict on a plan file."""

from pathlib import Path

import click

from experiments.commands.show import Figures, print_figures, show_us
from solvers.ir.codec import read_plan, read_problem
from solvers.kinds import KINDS

HELP = """Judge PLAN against PROBLEM from the problem's definition alone, whoever made the plan.

Prints each violation on a line and the recomputed objective. Exit code 1: there are violations, or no decision."""


@click.command("check", help=HELP)
@click.argument("problem", type=click.Path(path_type=Path))
@click.argument("plan", type=click.Path(path_type=Path))
def command(problem: Path, plan: Path) -> int:
    """See HELP."""
    from solvers.check import check_plan

    asked, sha256 = read_problem(problem)
    answer = read_plan(plan)
    verdict = check_plan(asked, answer, sha256)
    for violation in verdict.violations:
        click.echo(f"violation: {' '.join(violation.split())}")
    figures: Figures = [
        ("verdict", "no violations" if verdict.clean else f"violations: {len(verdict.violations)}"),
        ("objective, recomputed", show_us(verdict.objective_us)),
        ("objective, claimed", show_us(answer.objective_us)),
        ("bound, claimed", show_us(answer.bound_us)),
    ]
    if answer.certificate is not None:
        foreign = answer.kind != asked.KIND or answer.problem_sha256 not in (None, sha256)
        figures.append(("certificate", "not judged" if foreign else _certificate(verdict.violations)))
    elif answer.bound_us is not None and KINDS[asked.KIND].certificates:
        figures.append(("certificate", "none: the bound is only claimed"))
    print_figures(asked.name, figures)
    return 0 if verdict.clean else 1


def _certificate(violations: tuple[str, ...]) -> str:
    wrong = any("certificate" in violation for violation in violations)
    return "does not hold" if wrong else "added up again: it holds"
