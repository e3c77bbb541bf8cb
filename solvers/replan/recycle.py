"""`recycle`: ReCycle's answer to a failure, which is to reroute, and its rule where rerouting ends."""

from dataclasses import dataclass
from typing import Literal, get_args

from solvers.ir.names import unknown
from solvers.ir.replan import CurrentState, ReplanPlan, ReplanProblem
from solvers.ir.solution import Call, Limits, Solution, Watch
from solvers.replan.algorithm1 import Algorithm1
from solvers.replan.answers import Split, dynamic, without_plan
from solvers.replan.recycle_schedule import Places
from solvers.replan.recycle_times import Floor, Techniques, recycle_step_us
from solvers.replan.reroute import rerouted
from solvers.replan.rerouting_rules import grid_of, places_of, why_not_rerouted
from solvers.replan.symmetric import Symmetric

LostStage = Literal["stop", "checkpoint", "replan"]


@dataclass(frozen=True)
class Recycle:
    """Adaptive rerouting with bubbles filled (ReCycle, SOSP 2024), [R] from the literature.

    As a solver its decision is the format's `reroute`, whose objective is F7: the format has no other step time for
    rerouting. `step_us` gives its own, from an explicit schedule with the techniques that are on (`Techniques`); the
    cluster simulation uses that one.

    `lost_stage`: what happens when a stage has lost all its nodes, about which its paper says nothing. `stop`: training
    ends. `checkpoint`: it restarts from a checkpoint as a grid of the same depth. `replan`: from a checkpoint into
    Algorithm 1's pipelines; and where rerouting is no valid decision for another reason, re-plan at once. The first two
    are no decisions of the format (no node alive holds the layers): the answer says so, and `restart` says into what.
    """

    bubble_filling: bool = True
    decoupled_backward: bool = True
    staggered_optimizer: bool = True
    weight_share: float = 0.5
    floor: Floor = "fault-free"
    lost_stage: LostStage = "checkpoint"
    NAME = "recycle"

    def __post_init__(self) -> None:
        """Refuse an unknown rule and a share that is none."""
        if self.lost_stage not in get_args(LostStage):
            raise unknown("choice for lost_stage", self.lost_stage, get_args(LostStage))
        self.techniques()

    def techniques(self) -> Techniques:
        """Which techniques are on."""
        return Techniques(
            self.bubble_filling, self.decoupled_backward, self.staggered_optimizer, self.weight_share, self.floor
        )

    def solve(self, problem: ReplanProblem, limits: Limits, watch: Watch | None = None) -> Solution[ReplanPlan]:
        """The decision to reroute, or what `lost_stage` says."""
        call = Call(self.NAME, limits)
        reason = why_not_rerouted(problem)
        if reason is None:
            return rerouted(self.NAME, problem, limits)
        if self.lost_stage == "replan" and (problem.current is not None or problem.data_parallel is not None):
            splits = Algorithm1().splits(problem)
            if splits is not None:
                return dynamic(call, problem, splits, reason)
        return without_plan(call, problem, reason)

    def step_us(
        self,
        problem: ReplanProblem,
        layers: tuple[int, ...],
        microbatches: int,
        failed: tuple[int, ...],
        degree: int,
        places: Places | None = None,
    ) -> int | None:
        """`recycle_step_us` with these techniques: the step in microseconds, None where rerouting is impossible."""
        return recycle_step_us(problem, layers, microbatches, failed, degree, self.techniques(), places)

    def step_of(self, problem: ReplanProblem, current: CurrentState) -> int | None:
        """The same for a running state; None too where its pipelines are not alike."""
        grid = grid_of(current)
        if grid is None:
            return None
        gone = set(current.failed)
        lost = [[node in gone for node in pipeline.nodes] for pipeline in current.pipelines]
        return self.step_us(problem, grid.layers, grid.microbatches, grid.failed, grid.degree, places_of(lost))

    def restart(self, problem: ReplanProblem, nodes: int, depth: int) -> tuple[Split, ...] | None:
        """The pipelines after a stage of depth-`depth` pipelines lost all its nodes, `nodes` being alive.

        None where training stops, by the rule or for want of nodes. States come from a checkpoint.
        """
        if self.lost_stage == "stop" or nodes < 1:
            return None
        if self.lost_stage == "checkpoint":
            return Symmetric().grid(problem, nodes, depth)
        return Algorithm1().splits_of(problem, nodes, max(1, nodes // depth))
