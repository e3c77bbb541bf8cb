"""Judge of schedules: the kind's own."""

from solvers.check.verdict import Verdict
from solvers.ir.errors import InvalidInput
from solvers.ir.problem import Problem
from solvers.ir.schedule import Schedule
from solvers.kinds import KINDS, kinds_with, load


def check_schedule(problem: Problem, schedule: Schedule) -> Verdict:
    """Judge a schedule: data present where computed, reuse after release, memory within budget, nothing leaked.

    Raises `InvalidInput` where schedules of the kind have no judge.
    """
    judge = KINDS[problem.KIND].judge_schedule
    if judge is None:
        known = " or ".join(kinds_with("judge_schedule"))
        raise InvalidInput(f"schedules of kind {problem.KIND} have no check: give a {known} problem")
    verdict: Verdict = load(judge)(problem, schedule)
    return verdict
