"""The judge of kind `recompute-layer`."""

from solvers.check.judge import Judge
from solvers.check.recompute_layer.judge import base_us, judge_recompute_layer
from solvers.check.recompute_layer.optimum import best_us

JUDGE = Judge(decision=judge_recompute_layer, base_us=base_us, best_us=best_us)
