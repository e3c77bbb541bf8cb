"""A training step of a system on a cluster: planned by `solvers.partition`, judged as a whole."""

from dataclasses import dataclass

from solvers.ir.hardware import Hardware
from solvers.partition.pipeline import Pipeline
from solvers.partition.policies import System, decide
from solvers.partition.stages import Stages
from solvers.partition.steps import PlannedStep, Unfit, step_by
from solvers.planner import require_valid
from solvers.workload import ModelShape, Parallelism

LARGEST = 2**53


@dataclass(frozen=True)
class Step(PlannedStep):
    """One training step of a system on a cluster."""

    pipeline: Pipeline

    @property
    def samples_per_s(self) -> float:
        """Throughput of one pipeline."""
        cut = self.pipeline.parallelism
        return cut.microbatch * cut.microbatches * 1e6 / self.makespan_us


def pipeline_on(shape: ModelShape, machine: Hardware, parallelism: Parallelism) -> Pipeline:
    """A model on a cluster, every stage with a device's whole memory."""
    return Pipeline(shape, parallelism, machine, machine.device().memory_bytes)


def simulate(pipeline: Pipeline, system: System, shared: dict[str, Stages] | None = None) -> Step | Unfit:
    """The step of a system, or why there is none; `shared` keeps what stages decided, by policy, for other systems."""
    if pipeline.shape.layers < pipeline.parallelism.pipeline:
        return Unfit(system, too_few_layers(pipeline))
    known = {} if shared is None else shared
    stages = known.setdefault(system.policy, Stages(pipeline.problem, decide(system.policy), as_printed=True))
    return judged(pipeline, step_by(pipeline.problem, system, stages))


def too_few_layers(pipeline: Pipeline) -> str:
    """Why a model has no partition into so many stages."""
    layers, depth = pipeline.shape.layers, pipeline.parallelism.pipeline
    return f"{layers} layers cannot fill {depth} stages with one each: take at most {layers} stages"


def judged(pipeline: Pipeline, step: PlannedStep | Unfit) -> Step | Unfit:
    """The step, its layers, policies and memory judged by the independent checker.

    Its time is as the paper counts it: a little less than the objective of the plan (`Stages.as_printed`).
    """
    if isinstance(step, Unfit):
        return step
    require_valid(step.problem, step.plan, f"step of {step.system.policy} on a {step.system.cut} partition")
    return Step(**vars(step), pipeline=pipeline)
