"""The judge of kind `partition`."""

from solvers.check.judge import Judge
from solvers.check.partition.judge import is_feasible, judge_partition

JUDGE = Judge(decision=judge_partition, is_feasible=is_feasible)
