"""The judge of the kind `joint` (formats.md 14)."""

from solvers.check.joint.judge import Peak, base_us, is_feasible, judge_joint, known_least_budget, peak_of
from solvers.check.judge import Judge

JUDGE = Judge(decision=judge_joint, base_us=base_us, least_budget_bytes=known_least_budget, is_feasible=is_feasible)

__all__ = ["JUDGE", "Peak", "peak_of"]
