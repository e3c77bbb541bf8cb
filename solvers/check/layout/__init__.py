"""The judge of kind `layout`: decisions, the least device memory, and certificates of bounds."""

from solvers.check.judge import Judge
from solvers.check.layout.floor import base_us
from solvers.check.layout.judge import judge_layout
from solvers.check.layout.least import is_feasible, least_device_bytes

JUDGE = Judge(decision=judge_layout, base_us=base_us, least_budget_bytes=least_device_bytes, is_feasible=is_feasible)
