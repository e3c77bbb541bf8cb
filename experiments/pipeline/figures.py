"""A step as figures: what rows and the papers' tables tell of it."""

from typing import Any

from experiments.pipeline.simulate import Step
from solvers.partition.steps import Unfit


def figures_of(step: Step | Unfit) -> dict[str, Any]:
    """The figures of a step as JSON: times of one step, summed over microbatches, by stage."""
    if isinstance(step, Unfit):
        return {"reason": step.reason}
    count = step.pipeline.parallelism.microbatches
    return {
        "samples_per_s": step.samples_per_s,
        "makespan_us": step.makespan_us,
        "layers": list(step.layers),
        "critical_us": list(step.critical_us),
        "stall_hidden_us": [int(us) for us in step.times.hidden_us],
        "window_hidden_us": [step.window_hidden_us(stage) for stage in range(len(step.stages))],
        "kept_us": [count * one.kept_us for one in step.stages],
        "bubble_us": list(step.bubble_us),
        "peak_bytes": [one.peak_bytes for one in step.memory],
    }
