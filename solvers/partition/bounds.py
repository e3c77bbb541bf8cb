"""How fast a step could be at best: any mix of policies in every stage, any partition (recompute/layer, M)."""

from collections.abc import Sequence

from solvers.ir.recompute import RecomputeLayerProblem
from solvers.partition.fastest import Fastest, exact_1f1b
from solvers.partition.pipeline import Pipeline
from solvers.partition.policies import decide
from solvers.partition.stage_times import StageTimes, stage_times
from solvers.partition.stages import Stages
from solvers.recompute.layer import Layer, TooManyStates, front_of
from solvers.recompute.layer.answers import fixed_bytes
from solvers.recompute.layer.mix import Menu, least_bound, peak_bounds
from solvers.timeline.pipeline.inputs import Hide
from solvers.workload import p2p_us


def least_critical_us(problem: RecomputeLayerProblem) -> int | None:
    """A bound on the recomputation that any mix of policies leaves on the critical path; None where nothing fits."""
    layers, flying = problem.layers, problem.inflight_microbatches
    try:
        front = front_of(Layer.of(problem), flying)
    except TooManyStates:
        return 0
    room = problem.budget_bytes - fixed_bytes(problem)
    choice = front.best(layers, flying, room)
    if choice is None:
        return None
    best = layers * choice.time_us
    if best == 0:
        return 0
    menu = Menu(front.time_us, front.share(flying), front.working_bytes, layers, room)
    return least_bound(peak_bounds(menu, best), best)


def bound_times(pipeline: Pipeline) -> StageTimes:
    """Every stage with every number of layers if it met that bound, and hid in the cool-down whatever its memory.

    Numbers of layers that the fastest partition cannot have are left out: HEU's even partition is faster than any with
    them, and no slower than the bound of its own layers.
    """
    cut, count = pipeline.parallelism, pipeline.shape.layers
    most = count - cut.pipeline + 1
    reach = Stages(pipeline, decide("heu")).reach()
    most = most if reach is None else min(most, reach)

    def least(stage: int, layers: int) -> int | None:
        return least_critical_us(pipeline.heu_problem(stage, layers)) if 1 <= layers <= most else None

    return _times(pipeline, [[least(stage, n) for n in range(count + 1)] for stage in range(cut.pipeline)])


def _times(pipeline: Pipeline, critical: Sequence[Sequence[int | None]]) -> StageTimes:
    """The stages' tables with these times of recomputation; None where layers do not fit."""
    extras = [
        (sum(extra.forward_us for extra in own), sum(extra.backward_us for extra in own)) for own in pipeline.extras
    ]
    layer, counts = pipeline.costs, range(pipeline.shape.layers + 1)
    return stage_times(
        [[forward + n * layer.forward_us for n in counts] for forward, _ in extras],
        [[backward + n * layer.backward_us for n in counts] for _, backward in extras],
        recompute_us=[[us or 0 for us in row] for row in critical],
        fits=[[us is not None for us in row] for row in critical],
    )


def best_possible(pipeline: Pipeline, hide: Hide) -> Fastest:
    """The partition that would be the fastest at the bound of every stage; its `bound_us` bounds every 1F1B step.

    Valid for each mix of policies in each stage and each partition, recomputation hidden in collectives or as `hide`
    says: the recurrence rises with recomputation, and what forward windows hide is left out of the cool-down.
    """
    return _fastest(pipeline, bound_times(pipeline), hide)


def without_recomputation(pipeline: Pipeline) -> Fastest:
    """The fastest partition with memory without end."""
    table = [[0] * (pipeline.shape.layers + 1)] * pipeline.parallelism.pipeline
    return _fastest(pipeline, _times(pipeline, table), "none")


def _fastest(pipeline: Pipeline, times: StageTimes, hide: Hide) -> Fastest:
    message = p2p_us(pipeline.shape, pipeline.parallelism, pipeline.machine)
    return exact_1f1b(times, pipeline.parallelism.microbatches, p2p_us=message, hide_in_stalls=hide)
