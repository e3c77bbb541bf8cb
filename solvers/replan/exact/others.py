"""What the room's heuristics would do: where the search has not met its bound, one of them may do better."""

from collections.abc import Sequence
from typing import Protocol

from solvers.ir.replan import ReplanPlan, ReplanProblem
from solvers.ir.solution import Call, Limits, Solution, Watch
from solvers.replan.algorithm1 import Algorithm1
from solvers.replan.answers import Split, dynamic
from solvers.replan.estimate.objective import step_us, stretched_us
from solvers.replan.oobleck import Oobleck
from solvers.replan.progress import GRACE_S, Progress, Stop
from solvers.replan.symmetric import Symmetric
from solvers.replan.transfer.restore import Restorer

MOST_NODES_TIMES_LAYERS, MOST_DEPTH = 400_000, 80
"""Up to here Oobleck and Varuna answer within a second."""


class Heuristic(Protocol):
    """A solver that names pipelines before their nodes are chosen, which takes longer at scale."""

    NAME: str

    def splits(self, problem: ReplanProblem, stop: Stop) -> Sequence[Split] | None:
        """The pipelines; None where it finds none, or none in time."""


def is_deep(problem: ReplanProblem) -> bool:
    """Whether pipelines may be so deep that the search itself may not come far."""
    return min(problem.max_depth, problem.layers, problem.nodes) > MOST_DEPTH


def best_of_others(
    problem: ReplanProblem, limits: Limits, watch: Watch | None = None, below_us: int | None = None
) -> Solution[ReplanPlan] | None:
    """The best re-planning of Algorithm 1, Oobleck and Varuna, ties to the first; None where none has one.

    Only plans with an objective below `below_us` are of interest: pipelines that cannot have one, whatever nodes they
    get, get none. Each is given the limits for itself. Many nodes are left to Algorithm 1.
    """
    best: Solution[ReplanPlan] | None = None
    restorer = Restorer(problem)
    for solver in _asked(problem):
        call, stop = Call(solver.NAME, limits), Progress(limits, watch).stop
        splits = solver.splits(problem, stop)
        if splits is None or not _may_be_better(problem, restorer, splits, below_us):
            continue
        if restorer.about_s(splits) > Progress(limits, watch).left_s + GRACE_S:
            continue
        answer = dynamic(call, problem, splits)
        if answer.objective is not None and (below_us is None or answer.objective < below_us):
            best, below_us = answer, answer.objective
    return best


def _asked(problem: ReplanProblem) -> list[Heuristic]:
    asked: list[Heuristic] = []
    if problem.current is not None or problem.data_parallel is not None:
        asked.append(Algorithm1())
    if is_deep(problem) or problem.nodes * problem.layers <= MOST_NODES_TIMES_LAYERS:
        asked += [Oobleck(), Symmetric()]
    return asked


def _may_be_better(problem: ReplanProblem, restorer: Restorer, splits: Sequence[Split], below_us: int | None) -> bool:
    """Whether these pipelines, moving no more than they must, would have an objective below this one."""
    lost_us = (problem.restart_us or 0) + restorer.least_us(splits)
    floor_us = stretched_us(problem, step_us(problem, splits), lost_us)
    return floor_us is not None and (below_us is None or floor_us < below_us)
