"""What a joint plan would do: its stages and transfers on three lanes, memory over time, stalls by cause."""

from solvers.ir.errors import InvalidProblem
from solvers.ir.joint import JointPlan, JointProblem
from solvers.ir.report import Report, Span
from solvers.joint.draft import Draft, Measured, draft_of, kept_of, measure
from solvers.joint.given import Given, given_of


def plan_report(problem: JointProblem, plan: JointPlan) -> Report:
    """The report of a valid plan; raises `InvalidProblem` where it breaks a rule of its problem.

    A stage is one span of the compute lane, its recomputations included.
    """
    given = given_of(problem)
    draft = draft_of(given, plan)
    found = measure(given, draft)
    if found.violation is not None:
        raise InvalidProblem(f"the plan is invalid ({found.violation}): check it with `bayplan check` first")
    levels = _levels(given, draft, found)
    peak_at, peak = max(levels, key=lambda level: (level[1], -level[0]))
    waits = list(zip([0, *found.end[:-1]], found.ready, found.start, strict=True))
    ticks, unit = kept_of(given, draft.again).ticks, given.ticks
    stalls = {
        "swap_out": sum(ready - before for before, ready, _ in waits) / unit,
        "swap_in": sum(start - ready for _, ready, start in waits) / unit,
        "recompute": sum(took - own for took, own in zip(ticks, given.time, strict=True)) / unit,
    }
    makespan_us = found.end[-1] / unit
    return Report(
        name=problem.name,
        how="simulated",
        source="solvers.joint",
        makespan_us=makespan_us,
        base_us=given.base_us,
        budget_bytes=given.budget,
        peak_bytes=peak,
        peak_at_us=peak_at,
        stall_us=stalls,
        launch_us=makespan_us - given.base_us - sum(stalls.values()) if given.launched else None,
        spans=_spans(given, draft, found),
        memory=levels,
    )


def _spans(given: Given, draft: Draft, found: Measured) -> tuple[Span, ...]:
    """Stages in order, then the transfers in the order of the decision."""
    rows = [
        ("0.compute", _label(given, draft, t), start, end)
        for t, (start, end) in enumerate(zip(found.start, found.end, strict=True))
    ]
    names = [given.problem.ops[away.op].name for away in draft.away]
    rows += [("0.out", f"swap_out {name}", *span) for name, span in zip(names, found.out, strict=True)]
    rows += [("0.in", f"swap_in {name}", *span) for name, span in zip(names, found.back, strict=True)]
    unit = given.ticks
    return tuple(
        Span(action=number, lane=lane, label=label, start_us=start / unit, end_us=end / unit)
        for number, (lane, label, start, end) in enumerate(rows)
    )


def _label(given: Given, draft: Draft, t: int) -> str:
    name, again = given.problem.ops[t].name, len(draft.again[t])
    return f"{name} (and {again} again)" if again else name


def _levels(given: Given, draft: Draft, found: Measured) -> tuple[tuple[float, int], ...]:
    """The most in use from the moment each stage is ready: its own peak, and what has not left yet."""
    levels = []
    for t, (ready, peak) in enumerate(zip(found.ready, found.peaks, strict=True)):
        leaving = sum(
            given.graph.size[away.op]
            for away, (_, end) in zip(draft.away, found.out, strict=True)
            if away.out_after < t and end > ready
        )
        levels.append((ready / given.ticks, peak + leaving))
    return tuple(levels)
