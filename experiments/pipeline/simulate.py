"""A training step of a system: its stages' policies and partition, judged, and the exact 1F1B time they take."""

from collections.abc import Sequence
from dataclasses import dataclass

from solvers.ir.hardware import Hardware
from solvers.ir.partition import PartitionPlan, PartitionProblem
from solvers.ir.recompute import RecomputeLayerPlan
from solvers.ir.solution import Limits, Solution, Solver, Status
from solvers.partition import Dp, GreedyLynx, even_split, problem_of_array
from solvers.partition.bounds import best_possible
from solvers.partition.fastest import Fastest, exact_1f1b
from solvers.partition.pipeline import Pipeline
from solvers.partition.policies import POLICIES, System, decide
from solvers.partition.stages import StageChoice, Stages
from solvers.planner import require_clean
from solvers.timeline import PipelineTimes, StageMemory, stage_memory
from solvers.timeline import pipeline as run_pipeline
from solvers.timeline.pipeline.inputs import Discipline
from solvers.workload import ModelShape, Parallelism, p2p_us

LARGEST = 2**53
CUTS: dict[str, Solver[PartitionProblem, Solution[PartitionPlan]]] = {"dp": Dp(), "greedy-lynx": GreedyLynx()}


@dataclass(frozen=True)
class Step:
    """One training step of a system: its stages, every pass's times, and each stage's memory."""

    system: System
    pipeline: Pipeline
    stages: tuple[StageChoice, ...]
    times: PipelineTimes
    memory: tuple[StageMemory, ...]

    @property
    def layers(self) -> tuple[int, ...]:
        """The partition."""
        return tuple(stage.layers for stage in self.stages)

    @property
    def makespan_us(self) -> int:
        """The step's time."""
        return int(self.times.makespan_us)

    @property
    def samples_per_s(self) -> float:
        """Throughput of one pipeline."""
        cut = self.pipeline.parallelism
        return cut.microbatch * cut.microbatches * 1e6 / self.makespan_us

    @property
    def critical_us(self) -> tuple[int, ...]:
        """For each stage, recomputation that delays it in one step: what no collective and no stall hides."""
        return tuple(int(us) for us in self.times.recomputing_us - self.times.hidden_us)

    def window_hidden_us(self, stage: int) -> int:
        """Recomputation of a stage that collectives hide in one step; a forward window serves no cool-down pass."""
        one, cut = self.stages[stage], self.pipeline.parallelism
        steady = max(0, cut.microbatches - (cut.pipeline - 1 - stage))
        return cut.microbatches * one.backward_hidden_us + steady * one.forward_hidden_us

    @property
    def bubble_us(self) -> tuple[int, ...]:
        """For each stage, the time of the step in which it has nothing to do."""
        return tuple(int(us) for us in self.times.stall_us)


@dataclass(frozen=True)
class Unfit:
    """No step: what does not fit where."""

    system: System
    reason: str


def pipeline_on(shape: ModelShape, machine: Hardware, parallelism: Parallelism) -> Pipeline:
    """A model on a cluster, every stage with a device's whole memory."""
    return Pipeline(shape, parallelism, machine, machine.device().memory_bytes)


def simulate(pipeline: Pipeline, system: System, stages: Stages | None = None) -> Step | Unfit:
    """The step of a system, or why there is none; `stages` may be shared by systems of one policy."""
    stages = stages or Stages(pipeline, decide(system.policy))
    layers = split(pipeline, stages, system)
    if isinstance(layers, Unfit):
        return layers
    return step_of(pipeline, system, stages, layers)


def split(pipeline: Pipeline, stages: Stages, system: System) -> tuple[int, ...] | Unfit:
    """How many layers each stage gets, or why no partition fits."""
    cut = pipeline.parallelism
    if system.cut == "balanced":
        if pipeline.shape.layers < cut.pipeline:
            return Unfit(system, f"{pipeline.shape.layers} layers cannot fill {cut.pipeline} stages with one each")
        return even_split(pipeline.shape.layers, cut.pipeline)
    if system.cut in ("fastest", "bound"):
        found = fastest(pipeline, stages, system) if system.cut == "fastest" else best_possible(pipeline, system.hide)
        return (
            Unfit(system, _no_partition(stages, system, found.reason or "")) if found.layers is None else found.layers
        )
    problem = problem_of_array(pipeline.shape.name, stages.costs())
    solution = CUTS[system.cut].solve(problem, Limits())
    if solution.plan is None:
        return Unfit(system, _no_partition(stages, system, solution.reason or ""))
    require_clean(problem, solution, "partition")
    return solution.plan.layers


def fastest(pipeline: Pipeline, stages: Stages, system: System) -> Fastest:
    """The partition whose 1F1B step is the shortest, with its bound."""
    return exact_1f1b(
        stages.times(system.hide),
        pipeline.parallelism.microbatches,
        p2p_us=message_us(pipeline),
        hide_in_stalls=system.hide,
    )


def message_us(pipeline: Pipeline) -> int:
    """Time of a message between stages."""
    return p2p_us(pipeline.shape, pipeline.parallelism, pipeline.machine)


def step_of(pipeline: Pipeline, system: System, stages: Stages, layers: Sequence[int]) -> Step | Unfit:
    """The step of a partition; every stage's policy is judged by the independent checker."""
    chosen = []
    for stage, count in enumerate(layers):
        one = stages.choice(stage, count)
        if one is None:
            return Unfit(system, why_unfit(pipeline, system.policy, stage, count))
        plan = RecomputeLayerPlan(groups=one.groups)
        solution = Solution(status=Status.FEASIBLE, plan=plan, objective=one.critical_us, solver=system.policy)
        require_clean(pipeline.heu_problem(stage, count), solution, f"policy of stage {stage}")
        chosen.append(one)
    times = run_pipeline(
        [one.forward_us for one in chosen],
        [one.backward_us for one in chosen],
        microbatches=pipeline.parallelism.microbatches,
        recompute_us=[one.critical_us for one in chosen],
        forward_hidden_us=[one.forward_hidden_us for one in chosen],
        p2p_us=message_us(pipeline),
        how=Discipline(
            hide_in_stalls=system.hide,
            may_hide=[stages.may_hide(stage, one, system.hide) for stage, one in enumerate(chosen)],
        ),
    )
    return Step(system, pipeline, tuple(chosen), times, stage_memory(times, [one.memory for one in chosen]))


def why_unfit(pipeline: Pipeline, policy: str, stage: int, layers: int) -> str:
    """Why a stage with n layers does not fit under a policy."""
    solution = POLICIES[policy].solve(pipeline.heu_problem(stage, layers), Limits())
    return f"stage {stage} with {layers} layers: {solution.reason}"


def _no_partition(stages: Stages, system: System, reason: str) -> str:
    """The partition's reason, and the first stage that an even partition does not fit."""
    pipeline = stages.pipeline
    if pipeline.shape.layers < pipeline.parallelism.pipeline:
        return reason
    for stage, layers in enumerate(even_split(pipeline.shape.layers, pipeline.parallelism.pipeline)):
        if stages.choice(stage, layers) is None:
            return f"no partition fits, and of an even one {why_unfit(pipeline, system.policy, stage, layers)}"
    return reason
