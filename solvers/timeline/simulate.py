"""One entrance: a problem and a schedule of it in, a report out."""

from solvers.ir.codec import Problem
from solvers.ir.errors import InvalidInput
from solvers.ir.recompute import RecomputeGraphProblem
from solvers.ir.report import Report
from solvers.ir.schedule import Schedule
from solvers.ir.swap import SwapProblem
from solvers.timeline.recompute import simulate_recompute
from solvers.timeline.swap import simulate_swap


def simulate(problem: Problem, schedule: Schedule) -> Report:
    """What the schedule would do on the problem's link and budget; exact in the model's microseconds.

    Raises `InvalidInput` where the schedule is not one of this problem, or the kind has no timeline.
    """
    if isinstance(problem, SwapProblem):
        return simulate_swap(problem, schedule)
    if isinstance(problem, RecomputeGraphProblem):
        return simulate_recompute(problem, schedule)
    raise InvalidInput(
        f"schedules of kind {problem.KIND} have no timeline: give a {SwapProblem.KIND} or {RecomputeGraphProblem.KIND} "
        "problem"
    )
