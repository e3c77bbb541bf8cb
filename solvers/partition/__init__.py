"""How many layers each pipeline stage gets: Lynx's partitioning, exact and greedy, and the pipeline's real time."""

from solvers.partition.balanced import Balanced, even_split
from solvers.partition.dp import Dp, best_split
from solvers.partition.greedy import GreedyLynx
from solvers.partition.table import UNFIT, partition_problem, problem_of_array

__all__ = ["UNFIT", "Balanced", "Dp", "GreedyLynx", "best_split", "even_split", "partition_problem", "problem_of_array"]
