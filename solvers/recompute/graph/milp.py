"""`opt-milp`: the corrected Lynx-OPT as one linear model, exact where an engine can finish it."""

from dataclasses import dataclass

from solvers.engines import Answer as EngineAnswer
from solvers.engines import solve
from solvers.ir.recompute import RecomputeGraphProblem
from solvers.ir.solution import Limits, Status, Watch
from solvers.recompute.graph.answers import (
    SLACK,
    Answer,
    Search,
    first_plans,
    no_plan,
    trivial,
    uninterrupted,
    windows_of,
)
from solvers.recompute.graph.replay import instance
from solvers.recompute.graph.stages import Allowed, StageModel, column_count, stage_model

SMALL = 3000
"""With `auto`, CP-SAT takes models of fewer columns (README has the measurement), HiGHS the others."""

BUILD_S_PER_COLUMN = 4e-5
"""About how long a column takes to be built and handed over."""


@dataclass(frozen=True)
class OptMilp:
    """Model M of the README on any engine: the bound is valid for every plan of the problem, and met if time allows.

    `engine` is `highs`, `cpsat`, `gurobi` or `auto`. Models of more than `most_columns` columns are not built, as no
    engine gets anywhere with them.
    """

    engine: str = "auto"
    most_columns: int = 250_000
    NAME = "opt-milp"

    def solve(self, problem: RecomputeGraphProblem, limits: Limits, watch: Watch | None = None) -> Answer:
        """The best plan found and a valid bound; INFEASIBLE with a lower bound on the least budget."""
        search = Search(instance(problem), self.NAME, limits, watch)
        return trivial(search) or uninterrupted(search, lambda: self._answer(search))

    def _answer(self, search: Search) -> Answer:
        first_plans(search, windows_of(search.given))
        found = search_model(search, self.engine, self.most_columns, search.observed)
        if found is not None and found.status is Status.INFEASIBLE and search.objective is None:
            return no_plan(search)
        if found is not None and found.bound is not None:
            search.raise_bound(found.bound, slack_of(found))
        return search.answer()


def search_model(
    search: Search, engine: str, most_columns: int, watch: Watch, allowed: Allowed = lambda t, i: True
) -> EngineAnswer | None:
    """Build model M with these recomputations allowed, solve it, and offer its plan; None where it was not asked."""
    size = column_count(search.given)
    if size > most_columns:
        search.notes.append(f"the linear model would have some {size} columns, more than {most_columns}: try opt")
    elif size * BUILD_S_PER_COLUMN > search.left_s():
        search.notes.append(f"the time left is too short for a linear model of some {size} columns: give more")
    if search.done() or size > most_columns or size * BUILD_S_PER_COLUMN > search.left_s():
        return None
    name = ("cpsat" if size < SMALL else "highs") if engine == "auto" else engine
    model = stage_model(search.given, allowed, integral=name == "cpsat")
    found = _ask(search, model, name, watch)
    search.engine = found.engine
    search.notes += [note for note in (found.fallback, found.reason) if note]
    if found.x is not None and not search.offer(model.recomputed(found.x, len(search.given))):
        search.notes.append(f"{found.engine}'s solution exceeds the budget within its tolerance and was dropped")
    return found


def slack_of(found: EngineAnswer) -> float:
    """CP-SAT's bounds are exact integers; float engines' hold within their tolerance."""
    return 0.0 if found.engine.startswith("CP-SAT") else SLACK


def _ask(search: Search, model: StageModel, engine: str, watch: Watch) -> EngineAnswer:
    start = None if search.runs is None else model.start(search.given, search.runs)
    limits = Limits(
        time_s=max(0.01, search.left_s()),
        work=search.limits.work,
        gap=search.limits.gap,
        threads=search.limits.threads,
        seed=search.limits.seed,
    )
    found = solve(model.model, limits, engine, watch, start)
    if found.interrupted:
        search.stopped = True
    return found
