"""The judge of kind `swap`: decisions, and schedules that carry them out."""

from solvers.check.judge import Judge
from solvers.check.swap.judge import base_us, is_feasible, judge_swap, known_least_budget
from solvers.check.swap.small import best_us

JUDGE = Judge(
    decision=judge_swap,
    base_us=base_us,
    least_budget_bytes=known_least_budget,
    is_feasible=is_feasible,
    best_us=best_us,
)
