"""`checkmate-layer`: the optimum without overlap, everything that is recomputed being on the critical path."""

import time
from dataclasses import dataclass

import msgspec

from solvers.ir.recompute import LayerGroup, RecomputeLayerPlan, RecomputeLayerProblem
from solvers.ir.solution import Limits, Solution, Status, Watch
from solvers.recompute.layer.answers import Ask
from solvers.recompute.layer.heu import Heu

ALONE = "the optimum where nothing is recomputed in communication"


@dataclass(frozen=True)
class CheckmateLayer:
    """The best mix of policies (or the best one, `groups` 1) that recompute on the critical path only.

    Checkmate's optimum (Jain et al. 2020) within this kind. The bound is None: overlap may be faster. INFEASIBLE is a
    proof for overlap too (README, L).
    """

    groups: int | None = None
    NAME = "checkmate-layer"

    def __post_init__(self) -> None:
        """Refuse groups as `heu` does."""
        Heu(groups=self.groups)

    def solve(
        self, problem: RecomputeLayerProblem, limits: Limits, watch: Watch | None = None
    ) -> Solution[RecomputeLayerPlan]:
        """The best plan without overlap."""
        ask = Ask(problem, self.NAME, limits, time.perf_counter())
        found = Heu(groups=self.groups).solve(msgspec.structs.replace(problem, windows=()), limits, watch)
        if found.status is Status.INFEASIBLE and found.least_budget_bytes is not None:
            return ask.infeasible(found.least_budget_bytes, engine=found.engine)
        if found.plan is None:
            return ask.unknown(found.reason or "no plan within the limits: give more time", engine=found.engine)
        groups = [_moved(group, len(problem.windows)) for group in found.plan.groups]
        alone = ALONE if found.status is Status.OPTIMAL else None
        return ask.feasible(groups, None, found.engine, alone, found.least_budget_bytes)


def _moved(group: LayerGroup, critical: int) -> LayerGroup:
    """The group with the critical path under its number in the problem with windows."""
    recomputed = tuple((i, critical) for i, _ in group.recomputed)
    return LayerGroup(layers=group.layers, stored=group.stored, recomputed=recomputed)
