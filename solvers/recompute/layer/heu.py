"""`heu`: Lynx-HEU as a look-up in the front of the layer's policies."""

import time
from dataclasses import dataclass

from solvers.ir.recompute import RecomputeLayerPlan, RecomputeLayerProblem
from solvers.ir.solution import Limits, Solution, Watch
from solvers.recompute.layer.answers import Ask, fixed_bytes
from solvers.recompute.layer.front import Front, front_of
from solvers.recompute.layer.layer import Layer
from solvers.recompute.layer.mix import Menu, relaxed_bound

FRONT = "front"


@dataclass(frozen=True)
class Heu:
    """One policy for all layers (Lynx §4.2).

    The bound is that of the best mix of any number of policies, so one policy is OPTIMAL only where it meets it.
    """

    NAME = "heu"

    def solve(
        self, problem: RecomputeLayerProblem, limits: Limits, watch: Watch | None = None
    ) -> Solution[RecomputeLayerPlan]:
        """The best policy; INFEASIBLE with the exact least budget where nothing fits."""
        ask = Ask(problem, self.NAME, limits, time.perf_counter())
        front = front_of(Layer.of(problem), problem.inflight_microbatches)
        layers, inflight = problem.layers, problem.inflight_microbatches
        least = fixed_bytes(problem) + front.least_memory(layers, inflight)
        choice = front.best(layers, inflight, ask.room_bytes)
        if choice is None:
            return ask.infeasible(least, engine=FRONT)
        best = layers * choice.time_us
        bound, _ = relaxed_bound(_menu(front, problem, ask.room_bytes), best)
        groups = [front.policy(choice.number).group(layers)]
        return ask.feasible(groups, bound=bound, engine=FRONT, least_budget_bytes=least)


def _menu(front: Front, problem: RecomputeLayerProblem, room_bytes: int) -> Menu:
    share = front.share(problem.inflight_microbatches)
    return Menu(front.time_us, share, front.working_bytes, problem.layers, room_bytes)
