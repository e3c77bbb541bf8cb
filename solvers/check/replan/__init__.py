"""The judge of kind `replan`: step time and memory, nodes and transfers."""

from solvers.check.judge import Judge
from solvers.check.replan.floor import best_us
from solvers.check.replan.judge import judge_replan

JUDGE = Judge(decision=judge_replan, best_us=best_us)
