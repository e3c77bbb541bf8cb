"""`bayplan check` on another planner's policy: verdict, where memory is fullest, and a plan at the same budget."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from experiments.commands.cut import CommandT
from experiments.commands.show import Figures, print_figures, show_share, show_us
from experiments.commands.streams import destination, place_of, print_json, write_at
from experiments.printable import printable
from solvers.ir.amounts import show_bytes
from solvers.ir.codec import PLAN_FORMAT, document_from_raw, plan_file, plan_to_raw, problem_sha256
from solvers.ir.errors import InvalidInput
from solvers.ir.joint import JointPlan, JointProblem
from solvers.ir.names import unknown
from solvers.ir.policy import Policy
from solvers.ir.problem import Problem
from solvers.ir.sentences import quoted
from solvers.ir.solution import Limits, Solution

if TYPE_CHECKING:
    from experiments.joint.policies import JudgedPolicy

NONE = "none"
SOLVERS = ("joint", "greedy-joint", NONE)
MOST_LINES = 5
"""Violations printed: a policy that lacks memory lacks it in hundreds of stages."""
_OPTIONS = (
    click.option("--counter-solver", metavar="NAME", help="joint, greedy-joint or none.  [default: joint]"),
    click.option("--counter-time-limit", type=float, metavar="S", help="Its seconds.  [default: 10]"),
    click.option("--counter-plan", type=click.Path(path_type=Path), metavar="C.json", help="Where to write its plan."),
)


def counter_options(command: CommandT) -> CommandT:
    """Give a command the options of a counter-plan."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True)
class Counter:
    """Who plans beside a policy, in how many seconds, and where that plan is written."""

    solver: str
    time_s: float
    out: Path | None

    @classmethod
    def of(cls, asked: Mapping[str, Any]) -> "Counter":
        """As the options say; raises `InvalidInput`."""
        solver, time_s = asked["counter_solver"] or SOLVERS[0], asked["counter_time_limit"]
        if solver not in SOLVERS:
            raise unknown("planner of counter-plans", solver, SOLVERS)
        if time_s is not None and not (time_s >= 0 and math.isfinite(time_s)):
            raise InvalidInput(f"--counter-time-limit is {time_s}: give at least 0 seconds")
        out = asked["counter_plan"]
        if solver == NONE and (out is not None or time_s is not None):
            raise InvalidInput("--counter-solver is none, so there is no counter-plan: leave its other options out")
        return cls(
            solver, 10.0 if time_s is None else time_s, None if out is None else destination(out, "--counter-plan")
        )

    @staticmethod
    def refuse(asked: Mapping[str, Any]) -> None:
        """Refuse them where the plan is one of ours."""
        for name, value in asked.items():
            if value is not None:
                option = f"--{name.replace('_', '-')}"
                raise InvalidInput(f"{option} is for policies of other planners, but PLAN is a plan: leave it out")


def is_policy(raw: Any, place: Path) -> bool:
    """Whether a file's values are a policy's; raises `InvalidInput` where they are neither that nor a plan's."""
    if not isinstance(raw, dict):
        raise InvalidInput(
            f"{place_of(place)} holds {type(raw).__name__}, not a JSON object: a {PLAN_FORMAT} or {Policy.FORMAT} file "
            "starts with {"
        )
    found = raw.get("format")
    if found not in (PLAN_FORMAT, Policy.FORMAT):
        raise InvalidInput(
            f"{place_of(place)} has format {quoted(found)}, but {PLAN_FORMAT!r} is expected here, or {Policy.FORMAT!r} "
            "for another planner's policy: give such a file"
        )
    return bool(found == Policy.FORMAT)


def line(violation: str) -> str:
    """A violation on one line that commands no terminal: it may quote what the plan holds."""
    return printable(" ".join(violation.split()))


def check_policy(problem: Problem, raw: Any, place: Path, counter: Counter, as_json: bool) -> int:
    """Print the verdict on a policy and a plan beside it; the result is the exit code."""
    from experiments.joint.policies import counter_plan, judged_policy

    if not isinstance(problem, JointProblem):
        raise InvalidInput(
            f"a policy is judged against a joint problem, but {problem.name} is of kind {problem.KIND}: make one by "
            "`bayplan make joint`"
        )
    policy: Policy = document_from_raw(raw, Policy, place_of(place))
    judged = judged_policy(problem, policy)
    found = None
    if counter.solver != NONE:
        found = counter_plan(problem, counter.solver, Limits(time_s=counter.time_s))
        if counter.out is not None:
            write_at(counter.out, plan_to_raw(plan_file(found, problem.KIND, problem_sha256(problem))))
    if as_json:
        print_json(_told(problem, policy, judged, found))
    else:
        _print(problem, policy, judged, found)
    return 0 if judged.clean else 1


def _print(problem: JointProblem, policy: Policy, judged: "JudgedPolicy", found: Solution[JointPlan] | None) -> None:
    for violation in judged.violations[:MOST_LINES]:
        click.echo(f"violation: {line(violation)}")
    if len(judged.violations) > MOST_LINES:
        click.echo(f"violation: and {len(judged.violations) - MOST_LINES} more")
    print_figures(problem.name, [*_figures(problem, policy, judged), *_counter_figures(problem, found)])


def _figures(problem: JointProblem, policy: Policy, judged: "JudgedPolicy") -> Figures:
    from experiments.joint.policies import where

    peak = judged.peak
    over = None if peak is None else peak.bytes - problem.budget_bytes
    within = "unknown" if over is None else f"{show_bytes(abs(over))} {'above it' if over > 0 else 'below it'}"
    return [
        ("policy", policy.name),
        ("verdict", "no violations" if judged.clean else f"violations: {len(judged.violations)}"),
        ("budget", show_bytes(problem.budget_bytes)),
        ("peak", None if peak is None else f"{show_bytes(peak.bytes)}, {within}"),
        ("the peak lies", None if peak is None else where(problem, peak)),
        ("step, given that memory", show_us(judged.step_us)),
        ("over the base", _over(judged.step_us, judged.base_us)),
    ]


def _counter_figures(problem: JointProblem, found: Solution[JointPlan] | None) -> Figures:
    """The plan beside it."""
    from experiments.joint.policies import where
    from solvers.check.joint import peak_of

    if found is None:
        return []
    if found.plan is None:
        return [("counter-plan", f"{found.solver}: {found.status.value}, {found.reason}")]
    peak, base = peak_of(problem, found.plan), found.base
    again = len(found.plan.compute) - len(problem.ops)
    return [
        ("counter-plan", f"{found.solver}: {found.status.value}, {len(found.plan.swap)} swaps, {again} recomputations"),
        ("its peak", None if peak is None else f"{show_bytes(peak.bytes)} {where(problem, peak)}"),
        ("its step", show_us(found.objective)),
        ("its step over the base", None if base is None else _over(found.objective, base)),
        ("no plan's step is below", show_us(found.bound)),
    ]


def _over(step_us: float | None, base_us: float) -> str | None:
    return None if step_us is None or not base_us else show_share((step_us - base_us) / base_us)


def _told(
    problem: JointProblem, policy: Policy, judged: "JudgedPolicy", found: Solution[JointPlan] | None
) -> dict[str, Any]:
    """The same as JSON."""
    peak = judged.peak
    told: dict[str, Any] = {
        "problem": problem.name,
        "policy": policy.name,
        "clean": judged.clean,
        "violations": [line(violation) for violation in judged.violations],
        "budget_bytes": problem.budget_bytes,
        "peak_bytes": None if peak is None else peak.bytes,
        "peak_stage": None if peak is None else peak.stage,
        "peak_op": None if peak is None else peak.op,
        "step_us": judged.step_us,
        "base_us": judged.base_us,
        "again_us": judged.again_us,
    }
    if found is not None:
        told["counter"] = {
            "solver": found.solver,
            "status": found.status.value,
            "objective_us": found.objective,
            "bound_us": found.bound,
            "least_budget_bytes": found.least_budget_bytes,
            "swaps": None if found.plan is None else len(found.plan.swap),
            "recomputations": None if found.plan is None else len(found.plan.compute) - len(problem.ops),
        }
    return told
