"""One entrance: a problem and a schedule of it in, a report out."""

from solvers.ir.errors import InvalidInput
from solvers.ir.problem import Problem
from solvers.ir.report import Report
from solvers.ir.schedule import Schedule
from solvers.kinds import KINDS, kinds_with, load


def simulate(problem: Problem, schedule: Schedule) -> Report:
    """What the schedule would do on the problem's link and budget; exact in the model's microseconds.

    Raises `InvalidInput` where the schedule is not one of this problem, or the kind has no timeline.
    """
    timeline = KINDS[problem.KIND].timeline
    if timeline is None:
        known = " or ".join(kinds_with("timeline"))
        raise InvalidInput(f"schedules of kind {problem.KIND} have no timeline: give a {known} problem")
    report: Report = load(timeline)(problem, schedule)
    return report
