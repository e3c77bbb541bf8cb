"""The judge of kind `recompute-graph`: decisions, schedules that carry them out, and certificates of bounds."""

from solvers.check.judge import Judge
from solvers.check.recompute_graph.judge import base_us, judge_recompute_graph
from solvers.check.recompute_graph.small import best_us

JUDGE = Judge(decision=judge_recompute_graph, base_us=base_us, best_us=best_us)
