"""`recompute-graph` (Lynx-OPT): when each op of a whole graph is computed again, and what is kept until when."""

from solvers.recompute.graph.checkmate import Checkmate
from solvers.recompute.graph.intervals import OptIntervals
from solvers.recompute.graph.milp import OptMilp
from solvers.recompute.graph.opt.solver import Opt

__all__ = ["Checkmate", "Opt", "OptIntervals", "OptMilp"]
