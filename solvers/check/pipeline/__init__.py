"""The judge of kind `pipeline`."""

from solvers.check.judge import Judge
from solvers.check.pipeline.base import base_range_us
from solvers.check.pipeline.judge import judge_pipeline
from solvers.check.pipeline.least import is_surely_feasible, least_budget_bytes

JUDGE = Judge(
    decision=judge_pipeline,
    base_us=base_range_us,
    least_budget_bytes=least_budget_bytes,
    is_feasible=is_surely_feasible,
)
