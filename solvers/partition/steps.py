"""A whole training step of a system: how its stages are cut, what each recomputes, and the exact time that follows."""

from collections.abc import Sequence
from dataclasses import dataclass

from solvers.ir.partition import PartitionPlan, PartitionProblem
from solvers.ir.pipeline import PipelinePlan, PipelineProblem, StagePolicies
from solvers.ir.solution import Limits, Solution, Solver
from solvers.partition.balanced import even_split
from solvers.partition.bounds import best_possible, fastest_of
from solvers.partition.dp import Dp
from solvers.partition.fastest import Fastest
from solvers.partition.greedy import GreedyLynx
from solvers.partition.policies import POLICIES, System, decide
from solvers.partition.stages import StageChoice, Stages, layer_problem_of, may_hide
from solvers.partition.table import problem_of_array
from solvers.timeline import PipelineTimes, StageMemory, stage_memory
from solvers.timeline import pipeline as run_pipeline
from solvers.timeline.pipeline.inputs import Discipline, Hide

CUTS: dict[str, Solver[PartitionProblem, Solution[PartitionPlan]]] = {"dp": Dp(), "greedy-lynx": GreedyLynx()}


@dataclass(frozen=True)
class PlannedStep:
    """One training step: its stages, every pass's times, and each stage's memory."""

    system: System
    problem: PipelineProblem
    stages: tuple[StageChoice, ...]
    times: PipelineTimes
    memory: tuple[StageMemory, ...]

    @property
    def layers(self) -> tuple[int, ...]:
        """The partition."""
        return tuple(stage.layers for stage in self.stages)

    @property
    def plan(self) -> PipelinePlan:
        """The decision."""
        policies = tuple(StagePolicies(groups=one.groups) for one in self.stages)
        return PipelinePlan(layers=self.layers, stages=policies, hide_in_stalls=self.times.hide_in_stalls)

    @property
    def makespan_us(self) -> int:
        """The step's time."""
        return int(self.times.makespan_us)

    @property
    def critical_us(self) -> tuple[int, ...]:
        """For each stage, recomputation that delays it in one step: what no collective and no stall hides."""
        return tuple(int(us) for us in self.times.recomputing_us - self.times.hidden_us)

    def window_hidden_us(self, stage: int) -> int:
        """Recomputation of a stage that collectives hide in one step; a forward window serves no cool-down pass."""
        one, count = self.stages[stage], self.problem.microbatches
        ahead = len(self.stages) - 1 - stage
        steady = max(0, count - ahead) if ahead and self.problem.order == "1f1b" else 0
        return count * one.backward_hidden_us + steady * one.forward_hidden_us

    @property
    def bubble_us(self) -> tuple[int, ...]:
        """For each stage, the time of the step in which it has nothing to do."""
        return tuple(int(us) for us in self.times.stall_us)


@dataclass(frozen=True)
class Unfit:
    """No step: what does not fit where."""

    system: System
    reason: str


def step_by(
    problem: PipelineProblem, system: System, stages: Stages | None = None, limits: Limits | None = None
) -> PlannedStep | Unfit:
    """The step of a system, or why there is none; `stages` may be shared by systems of one policy."""
    stages = stages or Stages(problem, decide(system.policy))
    layers = split(stages, system, limits)
    return layers if isinstance(layers, Unfit) else step_of(stages, system, layers)


def split(stages: Stages, system: System, limits: Limits | None = None) -> tuple[int, ...] | Unfit:
    """How many layers each stage gets, or why no partition fits."""
    problem = stages.problem
    if system.cut == "balanced":
        return even_split(problem.layers, len(problem.stages))
    if system.cut in ("fastest", "bound"):
        bound = system.cut == "bound"
        found = best_possible(problem, system.hide, limits) if bound else fastest(stages, system, limits)
        return Unfit(system, no_partition(stages, system, found.reason or "")) if found.layers is None else found.layers
    asked = problem_of_array(problem.name, stages.costs())
    solution = CUTS[system.cut].solve(asked, limits or Limits())
    if solution.plan is None:
        return Unfit(system, no_partition(stages, system, solution.reason or ""))
    return solution.plan.layers


def fastest(stages: Stages, system: System, limits: Limits | None = None) -> Fastest:
    """The partition whose step is the shortest, with its bound."""
    return fastest_of(stages.problem, stages.times(system.hide), system.hide, limits)


def step_of(stages: Stages, system: System, layers: Sequence[int]) -> PlannedStep | Unfit:
    """The step of a partition."""
    chosen = []
    for stage, count in enumerate(layers):
        one = stages.choice(stage, count)
        if one is None:
            return Unfit(system, why_unfit(stages.problem, system.policy, stage, count))
        chosen.append(one)
    return planned(stages.problem, system, chosen)


def planned(problem: PipelineProblem, system: System, chosen: Sequence[StageChoice]) -> PlannedStep:
    """The step in which every stage does this."""
    times = times_of(problem, chosen, system.hide)
    return PlannedStep(system, problem, tuple(chosen), times, stage_memory(times, [one.memory for one in chosen]))


def times_of(problem: PipelineProblem, chosen: Sequence[StageChoice], hide: Hide) -> PipelineTimes:
    """When every pass runs."""
    return run_pipeline(
        [one.forward_us for one in chosen],
        [one.backward_us for one in chosen],
        microbatches=problem.microbatches,
        recompute_us=[one.lane_us for one in chosen],
        forward_hidden_us=[one.cool_us for one in chosen],
        p2p_us=problem.p2p_us,
        how=Discipline(
            order=problem.order,
            hide_in_stalls=hide,
            may_hide=[may_hide(problem, stage, one, hide) for stage, one in enumerate(chosen)],
            ahead_us=[one.ahead_us for one in chosen],
        ),
    )


def why_unfit(problem: PipelineProblem, policy: str, stage: int, layers: int, limits: Limits | None = None) -> str:
    """Why a stage with n layers does not fit under a policy."""
    solution = POLICIES[policy].solve(layer_problem_of(problem, stage, layers), limits or Limits())
    return f"stage {stage} with {layers} layers: {solution.reason}"


def no_partition(stages: Stages, system: System, reason: str) -> str:
    """The partition's reason, and the first stage that an even partition does not fit."""
    problem = stages.problem
    for stage, layers in enumerate(even_split(problem.layers, len(problem.stages))):
        if stages.choice(stage, layers) is None:
            return f"no partition fits, and of an even one {why_unfit(problem, system.policy, stage, layers)}"
    return reason
