"""The policies that keep, swap and recompute by one plan, which a session makes of the step that it measures."""

from dataclasses import replace
from typing import Any, cast

from omegaconf import OmegaConf

from experiments.config import AllocatorKind, SolverConf
from experiments.execution import Decided, Execution, Joint, Treatment, attempt, execute
from experiments.figures import Figures
from experiments.outcomes import Bench, Outcome, answered_figures, executed_figures, remarks_on
from experiments.pictures import curve_of_plan, panel_of_report
from experiments.planning import make_limits

STEPS = 2
"""The first is measured, and the plan is for those behind it."""


def run_joint(bench: Bench, name: str) -> Outcome:
    """A joint solver's plan, made and executed within the budget; losses and all are compared as for every policy.

    Its peak and pass are predicted by the plan's simulation; there is no plan of the step beyond its backward pass.
    """
    joint = Joint(
        solver=name,
        parameters=_parameters(bench.settings.solver[name]),
        budget_bytes=bench.budget_bytes,
        limits=make_limits(bench.settings.limits),
    )

    def trained(steps: int, under: Treatment) -> Execution:
        return attempt(
            lambda: execute(bench.model, bench.world, steps, under, tell=lambda text: bench.tell(f"{name}: {text}"))
        )

    done = trained(bench.settings.steps, Treatment(capacity_bytes=bench.budget_bytes, joint=joint))
    if done.end == "out-of-memory" and done.decided is None:
        done = _explained(done, trained(STEPS, Treatment(joint=joint)))
    if done.decided is None:
        bytes_only = done.least_budget_bytes is not None and bench.settings.allocator is not AllocatorKind.exact
        reason = f"{done.reason} (of bytes; segments take more)" if bytes_only else done.reason
        return Outcome(bench.row(name, done.end, _without_plan(bench, done), reason))
    figures = executed_figures(bench, done).joined(_planned(done, done.decided))
    predicted = done.decided.predicted
    return Outcome(
        bench.row(name, done.end, figures, remarks_on(bench, done)),
        curve_of_plan(name, predicted),
        panel_of_report(name, predicted, done.decided),
        decided=done.decided,
    )


def _parameters(conf: SolverConf) -> dict[str, Any]:
    fields = cast("dict[str, Any]", OmegaConf.to_container(OmegaConf.structured(conf)))
    return {key: value for key, value in fields.items() if key != "_target_"}


def _explained(done: Execution, roomy: Execution) -> Execution:
    """A training that ran out of memory before its plan: what the same one says where the measured step has room."""
    if roomy.end in ("infeasible", "refused"):
        return roomy
    report = None if roomy.decided is None else roomy.decided.report
    if report is None:
        then = f"with room for it the training ended so: {roomy.reason}" if roomy.reason else "it knows no plan yet"
    elif report.within_budget:
        then = "a plan keeps the budget where that step has room"
    else:
        took = max(report.peak_bytes, report.reserved_peak_bytes)
        then = f"where that step has room, the steps behind it took {took} of {report.budget_bytes} bytes"
    why = f"in the first step, which is measured, all of the blocks recompute; {then}"
    return replace(done, reason=f"{done.reason} ({why})")


def _without_plan(bench: Bench, done: Execution) -> Figures:
    """What is known of a training that ended before there was a plan, or under it."""
    status = done.end if done.end in ("infeasible", "refused") else "unknown"
    return replace(executed_figures(bench, done), status=status, least_budget_bytes=done.least_budget_bytes)


def _planned(done: Execution, decided: Decided) -> Figures:
    report = decided.report
    took, predicted = report.pass_us, report.predicted_pass_us
    return answered_figures(decided.solution).joined(
        Figures(
            predicted_us=predicted,
            pass_us=took,
            predicted_peak_bytes=report.predicted_peak_bytes,
            deviation=1 - predicted / took if took and predicted is not None else None,
            as_planned=done.departure is None,
            swapped_bytes=sum(action.bytes for action in decided.schedule.actions if action.do == "swap_out"),
        )
    )
