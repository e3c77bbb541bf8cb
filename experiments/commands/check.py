"""`bayplan check`: an independent verdict on a plan file, or on another planner's policy."""

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from experiments.commands.policies import Counter, check_policy, counter_options, is_policy, line
from experiments.commands.show import Figures, print_figures, show_us
from experiments.commands.streams import place_of, print_json, raw_at, read_problem_at, require_one_stdin
from solvers.ir.codec import PlanFile, plan_from_raw
from solvers.ir.problem import Problem
from solvers.kinds import KINDS

if TYPE_CHECKING:
    from solvers.check import Proof, Verdict

HELP = """Judge PLAN against PROBLEM from the problem's definition alone, whoever made the plan.

Prints each violation on a line, the recomputed objective, and which claims are proven: by the judge itself, or by a
certificate that it adds up again; all others are only claimed. Exit code 1: there are violations, or no decision; with
--strict a claim that is not proven, too. One of the two may be -: it is read from stdin.

Of a joint PROBLEM, PLAN may be a policy of selective checkpointing that another planner made (bayplan-policy/1,
solvers/ir/formats.md 16): then its peak and the op there are named, and beside it stands a plan of --counter-solver at
the same budget. Exit code 1: the policy breaks the budget, or another rule."""


@click.command("check", help=HELP)
@click.argument("problem", type=click.Path(path_type=Path))
@click.argument("plan", type=click.Path(path_type=Path))
@click.option("--strict", is_flag=True, help="Exit code 1 also where a claim is not proven.")
@counter_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object in place of figures.")
def command(problem: Path, plan: Path, strict: bool, as_json: bool, **counter: Any) -> int:
    """See HELP."""
    from solvers.check import check_plan, prove

    require_one_stdin(problem, plan)
    asked, sha256 = read_problem_at(problem)
    raw = raw_at(plan)
    if is_policy(raw, plan):
        return check_policy(asked, raw, plan, Counter.of(counter), as_json)
    Counter.refuse(counter)
    answer = plan_from_raw(raw, place_of(plan))
    verdict = check_plan(asked, answer, sha256)
    proof = prove(asked, answer, verdict)
    verdict = replace(verdict, violations=(*verdict.violations, *proof.violations))
    certificate = _judged(asked, answer, sha256, verdict.violations, proof)
    fine = verdict.clean and not (strict and proof.claim is not None and not proof.is_proven)
    if as_json:
        print_json(_told(asked, answer, verdict, proof) | {"certificate": certificate})
        return 0 if fine else 1
    for violation in verdict.violations:
        click.echo(f"violation: {line(violation)}")
    figures: Figures = [
        ("verdict", "no violations" if verdict.clean else f"violations: {len(verdict.violations)}"),
        ("objective, recomputed", show_us(verdict.objective_us)),
        ("objective, claimed", show_us(answer.objective_us)),
        ("bound, claimed", show_us(answer.bound_us)),
        ("bound, proven", _proven(proof, verdict)),
        ("claim", proof.sentence),
    ]
    print_figures(asked.name, [*figures, *([] if certificate is None else [("certificate", certificate)])])
    return 0 if fine else 1


def _proven(proof: "Proof", verdict: "Verdict") -> str:
    """The proven bound in words; of a decision that is none of this problem no claim is weighed."""
    if proof.proven_us == math.inf:
        return "infinite: no plan is valid"
    if proof.proven_us == 0 and proof.claim is None and not verdict.clean:
        return "none: claims are weighed of valid plans only"
    return show_us(proof.proven_us)


def _told(problem: Problem, answer: PlanFile, verdict: "Verdict", proof: "Proof") -> dict[str, Any]:
    """The verdict as JSON."""
    return {
        "problem": problem.name,
        "kind": problem.KIND,
        "clean": verdict.clean,
        "violations": [line(violation) for violation in verdict.violations],
        "objective_us": verdict.objective_us,
        "claimed_objective_us": answer.objective_us,
        "claimed_bound_us": answer.bound_us,
        "proven_bound_us": None if proof.proven_us == math.inf else proof.proven_us,
        "claim": proof.claim,
        "proven": proof.is_proven if proof.claim is not None else None,
    }


def _judged(problem: Problem, answer: PlanFile, sha256: str, violations: tuple[str, ...], proof: "Proof") -> str | None:
    """What became of the certificate, or of the want of one; None where the kind knows none."""
    if answer.certificate is not None:
        foreign = answer.kind != problem.KIND or answer.problem_sha256 not in (None, sha256)
        return "not judged" if foreign else _certificate(violations)
    unproven = answer.bound_us is not None and not proof.is_proven and KINDS[problem.KIND].certificates
    return "none: the bound is only claimed" if unproven else None


def _certificate(violations: tuple[str, ...]) -> str:
    wrong = any("certificate" in violation for violation in violations)
    return "does not hold" if wrong else "added up again: it holds"
