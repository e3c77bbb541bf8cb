"""The judge of kind `partition`."""

from solvers.check.judge import Judge
from solvers.check.partition.judge import is_feasible, judge_partition
from solvers.check.partition.optimum import best_us

JUDGE = Judge(decision=judge_partition, is_feasible=is_feasible, best_us=best_us)
