"""What was planned, and what the independent judge says of it: every plan file of a run's folder is judged again."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.reporting.inside import Inside
from experiments.tables import Table
from solvers.check import Verdict, check_plan
from solvers.ir.codec import PlanFile, read_plan, read_problem
from solvers.ir.errors import BayplanError
from solvers.ir.sentences import one_line

MOST_BYTES, MOST_PLANS = 12 << 20, 400
"""What is judged while a page is made: bytes of problems and plans in all, and plan files."""
APART = 12
"""Plans up to here have a line each; more are told by their folder."""
NOTE = (
    "Every plan file of the folder, judged while this page was made by solvers.check, which shares no code with any "
    "solver. Gap: (objective − bound) / objective; overhead gap: (objective − bound) / (objective − base), base: the "
    "objective with unlimited memory. –: not known, or none."
)


@dataclass(frozen=True)
class Judged:
    """A plan file, its objective as the judge computed it, and what is wrong with it; None: it was not judged."""

    name: str
    answer: PlanFile | None
    verdict: Verdict | None
    fault: str = ""


def judged_plans(inside: Inside) -> list[Judged]:
    """Every `plans/…json` beside the problem that it is of."""
    found: list[Judged] = []
    spent = 0
    for place in inside.files("plans", "*.json", deep=True)[:MOST_PLANS]:
        below = place.relative_to(inside.root / "plans")
        name = below.with_suffix("")
        plan = inside.file(f"plans/{below}")
        if plan is None:
            found.append(Judged(str(name), None, None, "not judged: it is no file of the folder"))
            continue
        problem = inside.file("problem.json") if len(name.parts) == 1 else None
        problem = problem or inside.file(f"problems/{below}")
        if problem is None:
            found.append(Judged(str(name), None, None, "its problem is not in the folder"))
            continue
        spent += plan.stat().st_size + problem.stat().st_size
        if spent > MOST_BYTES:
            found.append(Judged(str(name), None, None, "not judged here, too large: use bayplan check"))
            continue
        found.append(_judged(str(name), problem, plan))
    return found


def _judged(name: str, problem: Path, plan: Path) -> Judged:
    try:
        asked, sha256 = read_problem(problem)
        answer = read_plan(plan)
        if answer.decision is None:
            return Judged(name, answer, None, f"{answer.status.value}: no plan to judge")
        return Judged(name, answer, check_plan(asked, answer, sha256))
    except (BayplanError, OverflowError, RecursionError) as error:  # integers beyond any double
        return Judged(name, None, None, one_line(error))


def verdict_table(judged: Sequence[Judged]) -> Table | None:
    """Objective, bound, gaps and verdict of each plan; of many the verdicts by their folders."""
    if not judged:
        return None
    if len(judged) > APART:
        return _by_folder(judged)
    head = (
        "plan", "solver", "status", "objective (µs)", "recomputed by the judge", "bound (µs)", "gap", "overhead gap",
        "verdict",
    )  # fmt: skip
    return Table("What was planned, and what the judge says", head, tuple(map(_line, judged)), NOTE)


def _by_folder(judged: Sequence[Judged]) -> Table:
    groups: dict[str, list[Judged]] = {}
    for one in judged:
        groups.setdefault(one.name.rpartition("/")[0] or one.name, []).append(one)
    body = tuple(
        (
            name,
            str(len(group)),
            str(sum(one.verdict is not None and one.verdict.clean for one in group)),
            next((f"{one.name}: {_said(one)}" for one in group if _said(one) != CLEAN), CLEAN),
        )
        for name, group in groups.items()
    )
    return Table(
        "What the judge says of the plans", ("plans of", "plan files", "without violations", "verdict"), body, NOTE
    )


CLEAN = "no violations"


def _said(one: Judged) -> str:
    if one.verdict is None:
        return one.fault
    if one.verdict.clean:
        return CLEAN
    return f"violations: {len(one.verdict.violations)}, as {one_line(Exception(one.verdict.violations[0]))}"


def _line(one: Judged) -> tuple[str, ...]:
    if one.answer is None:
        return (one.name, *["–"] * 7, _said(one))
    try:
        return _figures(one, one.answer)
    except OverflowError:
        return (one.name, *["–"] * 7, f"{_said(one)}; its figures are too large to be shown")


def _figures(one: Judged, answer: PlanFile) -> tuple[str, ...]:
    recomputed = None if one.verdict is None else one.verdict.objective_us
    return (
        one.name,
        answer.solver,
        answer.status.value,
        _count(answer.objective_us),
        _count(recomputed),
        _count(answer.bound_us),
        _percent(answer.objective_us, answer.bound_us, 0),
        _percent(answer.objective_us, answer.bound_us, answer.base_us),
        _said(one),
    )


def _count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _percent(objective: float | None, bound: float | None, base: float | None) -> str:
    """What the bound leaves open of the objective beyond `base`."""
    if objective is None or bound is None or base is None:
        return "–"
    if objective == bound:
        return "0.00 %"
    return "–" if objective <= base else f"{100 * (objective - bound) / (objective - base):.2f} %"
