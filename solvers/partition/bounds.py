"""How fast a step could be at best: any mix of policies in every stage, any partition (recompute/layer, M)."""

from collections.abc import Sequence

from solvers.ir.pipeline import PipelineProblem
from solvers.ir.recompute import RecomputeLayerProblem
from solvers.ir.solution import Limits
from solvers.partition.fastest import Fastest, exact_step
from solvers.partition.policies import decide
from solvers.partition.stage_times import StageTimes, stage_times
from solvers.partition.stages import Stages, layer_problem_of
from solvers.recompute.layer import Layer, TooManyStates, front_of
from solvers.recompute.layer.answers import fixed_bytes
from solvers.recompute.layer.mix import Menu, least_bound, peak_bounds
from solvers.timeline.pipeline.inputs import Hide


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


def bound_times(problem: PipelineProblem) -> StageTimes:
    """Every stage with every number of layers if it met that bound, and recomputed ahead whatever its memory.

    Numbers of layers that the fastest partition cannot have are left out: HEU's even partition is faster than any with
    them, and no slower than the bound of its own layers.
    """
    count, depth = problem.layers, len(problem.stages)
    most = count - depth + 1
    reach = Stages(problem, decide("heu")).reach()
    most = most if reach is None else min(most, reach)

    def least(stage: int, layers: int) -> int | None:
        return least_critical_us(layer_problem_of(problem, stage, layers)) if 1 <= layers <= most else None

    return _times(problem, [[least(stage, n) for n in range(count + 1)] for stage in range(depth)])


def _times(problem: PipelineProblem, critical: Sequence[Sequence[int | None]]) -> StageTimes:
    """The stages' tables with these times of recomputation; None where layers do not fit."""
    extras, counts = [stage.extra_us for stage in problem.stages], range(problem.layers + 1)
    return stage_times(
        [[forward + n * problem.forward_us for n in counts] for forward, _ in extras],
        [[backward + n * problem.backward_us for n in counts] for _, backward in extras],
        recompute_us=[[us or 0 for us in row] for row in critical],
        fits=[[us is not None for us in row] for row in critical],
    )


def best_possible(problem: PipelineProblem, hide: Hide, limits: Limits | None = None) -> Fastest:
    """The partition that would be the fastest at the bound of every stage; its `bound_us` bounds every step.

    Valid for each mix of policies in each stage and each partition, recomputation hidden in collectives or as `hide`
    says: the recurrence rises with recomputation, and what forward windows hide is left out of the cool-down.
    """
    return fastest_of(problem, bound_times(problem), hide, limits)


def without_recomputation(problem: PipelineProblem, limits: Limits | None = None) -> Fastest:
    """The fastest partition with memory without end."""
    table = [[0] * (problem.layers + 1)] * len(problem.stages)
    return fastest_of(problem, _times(problem, table), "none", limits)


def fastest_of(problem: PipelineProblem, times: StageTimes, hide: Hide, limits: Limits | None = None) -> Fastest:
    """The fastest partition of stages with these times."""
    return exact_step(
        times,
        problem.microbatches,
        p2p_us=problem.p2p_us,
        hide_in_stalls=hide,
        order=problem.order,
        limits=limits,
    )
