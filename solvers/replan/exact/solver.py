"""`exact-replan`: the best decision after a failure, re-planned or rerouted, with a proof (README, proofs 1-6)."""

from dataclasses import dataclass

import msgspec

from solvers.ir.errors import require_at_least
from solvers.ir.replan import ReplanPlan, ReplanProblem
from solvers.ir.solution import Limits, Solution, Watch
from solvers.replan.answers import better, why_none
from solvers.replan.estimate.objective import stretched_us
from solvers.replan.exact.bounds import StageLimits
from solvers.replan.exact.incumbent import Replanned
from solvers.replan.exact.movable import Movable
from solvers.replan.exact.others import MOST_NODES_TIMES_LAYERS, best_of_others, is_deep
from solvers.replan.exact.steps import StepTimes
from solvers.replan.exact.transition import replanned
from solvers.replan.holding import holds
from solvers.replan.progress import ENDED, NONE_YET, Effort, Progress
from solvers.replan.reroute import rerouted

_CLOSE = 1e-4
"""Relative gap below which the heuristics are not asked."""
_SHARE, _GRACE_S = 0.1, 0.1
"""Share of the time limit for each heuristic where pipelines may be deep; its seconds where the time is up."""
_EFFORT_US, _ON_HOSTS_US = 1e6, 0.8e6
"""What an effort of 1 may count; less where hosts matter, as the last program or choice of nodes takes 0.2 s there."""
_TOO_LONG = "every transition takes the expected interval or longer: restart or transfer faster"
_NOT_FOUND = "no transition was found that is shorter than the expected interval, nor a proof that there is none"


@dataclass(frozen=True)
class ExactReplan:
    """Depths, layers, microbatches, head cost, memory and transition together; rerouting beside it.

    OPTIMAL where the bound is met. FEASIBLE with a valid bound where it is not: in large clusters step times are
    proven, but what a transition must move is only bounded. INFEASIBLE, saying why, where no
    decision is valid. Answers repeat.
    """

    most_suffixes: int = 2000
    """Partial splits of a pipeline that one search keeps at once; with fewer it may leave a gap."""

    effort: float = 1.0
    """Work after which nothing more is sought or proven, in about seconds of a core, but counted: it ends at the same
    point on any machine, whose plan and bound stand. Larger: longer, as far as the limits allow.
    """

    NAME = "exact-replan"

    def __post_init__(self) -> None:
        """Refuse to keep nothing."""
        require_at_least(1, most_suffixes=self.most_suffixes)
        require_at_least(0, effort=self.effort)

    def solve(self, problem: ReplanProblem, limits: Limits, watch: Watch | None = None) -> Solution[ReplanPlan]:
        """The best decision found within the limits, with its bound."""
        most_us = self.effort * (_EFFORT_US if problem.hosts is None else _ON_HOSTS_US)
        progress, effort = Progress(limits, watch), Effort(most_us)
        kept = rerouted(self.NAME, problem, limits)
        fitting, reason = holds(problem), why_none(problem)
        if reason is not None:
            return progress.call(self.NAME).infeasible(reason)
        first = _better_start(problem, limits, progress, kept) if fitting and is_deep(problem) else kept
        progress.incumbent_us = first.objective
        best, progress.bound_us = Replanned(first.objective), first.objective
        if fitting:
            progress.bound_us = None
            steps = StepTimes(problem, Movable(problem), self.most_suffixes, progress.stop, progress.late, effort)
            best = replanned(problem, steps, progress)
            if best.objective_us is None or not effort.over():
                best = _or_another(problem, limits, progress, best)
        plan = best.plan or first.plan
        if plan is None or best.objective_us is None:
            return self._without(best, progress)
        if progress.stop() and progress.bound_us is not None:
            progress.bound_us = max(progress.bound_us, _least_us(problem) or 0)
        return self._answer(plan, best.objective_us, progress, effort)

    def _answer(self, plan: ReplanPlan, objective: int, progress: Progress, effort: Effort) -> Solution[ReplanPlan]:
        bound = progress.bound_us
        if bound is not None and bound >= objective:
            return progress.call(self.NAME).found(plan, objective, objective)
        said = _open(objective, bound, progress.stop(), self.effort if effort.over() else None)
        return progress.call(self.NAME).found(plan, objective, bound, reason=said)

    def _without(self, best: Replanned, progress: Progress) -> Solution[ReplanPlan]:
        if best.impossible:
            return progress.call(self.NAME).infeasible(_TOO_LONG)
        said = NONE_YET if progress.stop() else _NOT_FOUND
        return progress.call(self.NAME).unknown(said, progress.bound_us)


def _or_another(problem: ReplanProblem, limits: Limits, progress: Progress, best: Replanned) -> Replanned:
    """Where little is proven, what the heuristics would do if that is better: dear transitions may leave it so."""
    objective, bound = best.objective_us, progress.bound_us
    close = objective is not None and bound is not None and objective - bound <= _CLOSE * objective
    if best.impossible or close or progress.close_enough() or is_deep(problem):
        return best
    if progress.stop() and problem.nodes * problem.layers > MOST_NODES_TIMES_LAYERS:
        return best
    some = msgspec.structs.replace(limits, time_s=max(progress.left_s, _GRACE_S))
    other = best_of_others(problem, some, below_us=best.objective_us)
    if other is None or other.objective is None:
        return best
    progress.incumbent_us = other.objective
    return Replanned(other.objective, other.plan)


def _better_start(
    problem: ReplanProblem, limits: Limits, progress: Progress, kept: Solution[ReplanPlan]
) -> Solution[ReplanPlan]:
    """What the heuristics find in some of the time, if it is better: the search may not come far."""
    share = _SHARE if limits.work is None else 1.0
    some = msgspec.structs.replace(limits, time_s=share * progress.left_s)
    other = best_of_others(problem, some, lambda *_: progress.stop(), kept.objective)
    return kept if other is None else better(kept, other)


def _least_us(problem: ReplanProblem) -> int | None:
    """No plan that re-plans has a lower objective: its nodes do all the work, each microbatch stage after stage.

    None where no restart pays.
    """
    alone_us = StageLimits(problem, problem.layers).alone_us
    return stretched_us(
        problem, max(alone_us, -(-problem.microbatches * alone_us // problem.nodes)), problem.restart_us or 0
    )


def _open(objective: int, bound: int | None, stopped: bool, spent: float | None) -> str:
    """What an answer that is not proven leaves open; `spent`: the effort, if it is."""
    if stopped or bound is None:
        return ENDED
    if spent is not None:
        left = f"an effort of {spent:g} is spent, which leaves {objective - bound} us open"
        return f"{left}: with a larger effort the search goes on"
    return f"what transitions must move is bounded, not searched through, which leaves {objective - bound} us open"
