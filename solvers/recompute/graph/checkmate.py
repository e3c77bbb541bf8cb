"""`checkmate`: the same model without overlap, nothing being recomputed during a communication."""

import math
from dataclasses import dataclass

from solvers.ir.recompute import RecomputeGraphProblem
from solvers.ir.solution import Limits, Status, Watch
from solvers.recompute.graph.answers import Answer, Search, first_plans, no_plan, trivial, uninterrupted
from solvers.recompute.graph.milp import search_model, slack_of
from solvers.recompute.graph.replay import Instance, instance
from solvers.recompute.graph.stages import hideable, latest_dependants


@dataclass(frozen=True)
class Checkmate:
    """Checkmate (Jain et al. 2020) in the corrected model: R[t,i] = 0 for i < t in the stages of communications.

    Its search is over these plans only, so its bound is the problem's only where no plan could hide anything; else the
    answer's bound is the time of each op once, and `reason` tells what was proved of plans without overlap. `engine`
    and `most_columns` are those of `opt-milp`.
    """

    engine: str = "auto"
    most_columns: int = 250_000
    NAME = "checkmate"

    def solve(self, problem: RecomputeGraphProblem, limits: Limits, watch: Watch | None = None) -> Answer:
        """The best plan found that hides nothing."""
        search = Search(instance(problem), self.NAME, limits, watch)
        return trivial(search) or uninterrupted(search, lambda: self._answer(search))

    def _answer(self, search: Search) -> Answer:
        given, whole = search.given, not can_hide(search.given)
        first_plans(search, windows=())
        watch = search.observed if whole else search.observed_part
        found = search_model(search, self.engine, self.most_columns, watch, lambda t, i: not given.comm[t])
        if found is None:
            return search.answer()
        if found.status is Status.INFEASIBLE and search.objective is None:
            if whole:
                return no_plan(search)
            search.notes.append("no plan without overlap fits: a plan that hides recomputation may")
        if found.bound is not None and whole:
            search.raise_bound(found.bound, slack_of(found))
        elif found.bound is not None:
            least = math.ceil(found.bound - slack_of(found) * max(1.0, abs(found.bound)))
            search.notes.append(f"no plan without overlap takes less than {least} us")
        return search.answer()


def can_hide(given: Instance) -> bool:
    """Whether some communication might hide the recomputation of something that is still needed."""
    last = latest_dependants(given)
    return any(
        given.size[i] > 0 and last[i] >= t and hideable(given, t, i)
        for t in range(len(given))
        if given.comm[t]
        for i in range(t)
    )
