"""`reroute`: keep the running pipelines; the peers of a failed node share its microbatches (F7, [R])."""

from dataclasses import dataclass
from fractions import Fraction

from solvers.ir.replan import ReplanPlan, ReplanProblem
from solvers.ir.solution import Call, Limits, Solution, Watch
from solvers.replan.answers import without_plan
from solvers.replan.estimate.objective import stretched_us
from solvers.replan.estimate.paper import f7_us
from solvers.replan.estimate.sync import sync_us
from solvers.replan.rerouting_rules import Grid, grid_of, why_not_rerouted
from solvers.replan.transfer.owners import checkpoint_reasons


@dataclass(frozen=True)
class Reroute:
    """Data rerouting, the other of the paper's two answers to a failure: no transition, but a longer step.

    FEASIBLE with bound None; UNKNOWN, saying why, where rerouting is no valid decision but another may be (pipelines
    that differ, a stage without survivor, memory); INFEASIBLE where no decision is valid.
    """

    NAME = "reroute"

    def solve(self, problem: ReplanProblem, limits: Limits, watch: Watch | None = None) -> Solution[ReplanPlan]:
        """The decision to reroute with F7's objective, at once."""
        return rerouted(self.NAME, problem, limits)


def rerouted(solver: str, problem: ReplanProblem, limits: Limits) -> Solution[ReplanPlan]:
    """The decision to reroute under this solver's name, or why it is not valid."""
    call = Call(solver, limits)
    step = None if checkpoint_reasons(problem) else rerouted_step_us(problem)
    objective = None if step is None else stretched_us(problem, step)
    if objective is None:
        return without_plan(call, problem, why_not_rerouted(problem) or "nothing can be trained")
    return call.found(ReplanPlan(policy="reroute", pipelines=(), transfers=None), objective)


def rerouted_step_us(problem: ReplanProblem) -> Fraction | None:
    """F7 and the synchronization, in microseconds before rounding; None where rerouting is not valid."""
    if problem.current is None or why_not_rerouted(problem) is not None:
        return None
    grid = grid_of(problem.current)
    return None if grid is None else grid_step_us(problem, grid)


def grid_step_us(problem: ReplanProblem, grid: Grid) -> Fraction:
    """F7 and the synchronization of a grid with a survivor of every stage, in microseconds before rounding."""
    time_us = f7_us(problem, grid.layers, grid.microbatches, grid.failed, grid.degree)
    return time_us + sync_us(problem, [grid.layers] * grid.degree)
