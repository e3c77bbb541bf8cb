"""What a step takes under ReCycle's three techniques, as explicit schedules ([R] after ReCycle, SOSP 2024)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Literal, get_args

from solvers.ir.errors import InvalidInput
from solvers.ir.names import unknown
from solvers.ir.replan import ReplanProblem
from solvers.replan.estimate.memory import stage_bytes
from solvers.replan.estimate.pipeline import pipeline_us, stage_times_us
from solvers.replan.even_placements import model_of
from solvers.replan.recycle_schedule import BACKWARD, FORWARD, WEIGHTS, Pass, Places, Work, scheduled, windows
from solvers.replan.rerouting_rules import Grid, rerouted_bytes

Floor = Literal["fault-free", "none"]

KEPT_STEPS = 4096
"""Step times that are remembered between calls."""
MOST_PASSES = 200_000
"""The largest schedule that is made; beyond, every stage counts the fullest one's microbatches (F7, rounded up)."""
ORDERS = ((BACKWARD, FORWARD, WEIGHTS), (BACKWARD, WEIGHTS, FORWARD))


@dataclass(frozen=True)
class Techniques:
    """ReCycle's techniques, each on or off.

    `bubble_filling`: a rerouted microbatch runs on its peer when the peer would idle; off: every stage runs as many
    microbatches as the fullest one in plain 1F1B, F7 with whole microbatches. `decoupled_backward`: the weights' part
    of a backward pass (`weight_share` of it) may wait for a bubble. `staggered_optimizer`: a stage synchronizes and
    updates after its own last pass, and begins its next step while earlier stages still end theirs.
    """

    bubble_filling: bool = True
    decoupled_backward: bool = True
    staggered_optimizer: bool = True
    weight_share: float = 0.5
    floor: Floor = "fault-free"

    def __post_init__(self) -> None:
        """Refuse a share that is none, and an unknown floor."""
        if self.floor not in get_args(Floor):
            raise unknown("choice for floor", self.floor, get_args(Floor))
        if not 0 <= self.weight_share <= 1:
            raise InvalidInput(f"weight_share is {self.weight_share}, outside 0…1: choose one inside")


ALL = Techniques()


def recycle_step_us(
    problem: ReplanProblem,
    layers: Sequence[int],
    microbatches: int,
    failed: Sequence[int],
    degree: int,
    techniques: Techniques = ALL,
    places: Places | None = None,
) -> int | None:
    """A step of `degree` alike pipelines that lost `failed[s]` nodes of stage s, in microseconds.

    `places[s]`: the pipelines that lost theirs; None: the first ones.

    None where a stage has no survivor, or its share does not fit (F8). The time is that of a schedule that could run
    as it stands, the best of those tried: two orders of passes, activations as in 1F1B or as many as memory holds, and
    with or without each technique that is on; so a technique never lengthens the step (except `bubble_filling`, whose
    absence is a formula that ignores whole microbatches' ways). ReCycle's own integer program may find better ones.
    A large grid is simulated by a smaller one whose survivors take over no fewer microbatches each, and whose failed
    nodes are in the first pipelines. Staggered steps repeat the schedule every max over stages of (end +
    synchronization − start) microseconds. The problem names no time for the optimizer: `sync_us` and `layer_sync_us`
    stand for it.
    """
    if any(gone >= degree for gone in failed):
        return None
    grid = Grid(degree, tuple(layers), microbatches, tuple(failed))
    if max(rerouted_bytes(problem, grid)) > problem.memory_bytes:
        return None
    smaller = reduced(grid)
    dead = places if places is not None and smaller == grid else first_places(smaller.failed)
    return _step_us(model_of(problem), smaller, dead, degree > 1, techniques)


def first_places(failed: Sequence[int]) -> Places:
    """The first pipelines lost as many nodes of each stage."""
    return tuple(tuple(range(count)) for count in failed)


def reduced(grid: Grid) -> Grid:
    """The smaller grid that stands for this one: a survivor of each stage takes over no fewer microbatches.

    With m + e pipelines, e the most that a survivor takes over anywhere, e_s losses of stage s give its survivors at
    most ⌈m·e_s / (m + e − e_s)⌉ ≤ e_s each; where that is less, one more loss is taken until it is not. Without any
    loss one pipeline stands for all.
    """
    m = grid.microbatches
    taken = [grid.most_microbatches(stage) - m for stage in range(len(grid.layers))]
    degree = min(grid.degree, m + max(taken)) if any(taken) else 1
    if degree == grid.degree:
        return grid
    failed = tuple(
        next(f for f in range(degree) if -(-m * f // (degree - f)) >= more or f == degree - 1) for more in taken
    )
    return Grid(degree, grid.layers, m, failed)


@lru_cache(maxsize=KEPT_STEPS)
def _step_us(model: ReplanProblem, grid: Grid, dead: Places, synchronized: bool, techniques: Techniques) -> int:
    """The best of the schedules, the most promising first, until one is no longer than the floor."""
    sync = [model.sync_us + model.layer_sync_us * count if synchronized else 0 for count in grid.layers]
    least = pipeline_us(model, grid.layers, grid.microbatches) + max(sync) if techniques.floor == "fault-free" else 0
    best: int | None = None
    for work in schedules_of(model, grid, techniques, dead):
        period = period_us(scheduled(work), sync, techniques.staggered_optimizer)
        best = period if best is None else min(best, period)
        if best <= least:
            return least
    assert best is not None, "plain 1F1B is always among the schedules"
    return best


def period_us(passes: Sequence[Pass], sync_us: Sequence[int], staggered: bool) -> int:
    """A step's time when steps follow each other: each stage as soon as it is updated, or all together."""
    starts, ends = windows(passes, len(sync_us))
    together = max(ends) + max(sync_us)
    if not staggered:
        return together
    return min(together, max(end + sync - start for start, end, sync in zip(starts, ends, sync_us, strict=True)))


def schedules_of(model: ReplanProblem, grid: Grid, techniques: Techniques, places: Places | None = None) -> list[Work]:
    """The schedules to try for a grid: weights apart before not, more held microbatches before fewer."""
    dead = first_places(grid.failed) if places is None else places
    if not techniques.bubble_filling or grid.degree * grid.microbatches * len(grid.layers) * 3 > MOST_PASSES:
        grid = _stretched(grid)
        dead = first_places(grid.failed)
    forward, backward = (part.tolist() for part in stage_times_us(model, grid.layers))
    shares = {0.0, techniques.weight_share} if techniques.decoupled_backward else {0.0}
    works = []
    for share, flights in product(sorted(shares, reverse=True), _flights(model, grid, techniques.bubble_filling)):
        weights = [int(time * share) for time in backward]
        works += [
            Work(
                forward_us=tuple(forward),
                backward_us=tuple(time - apart for time, apart in zip(backward, weights, strict=True)),
                weights_us=tuple(weights),
                hop_us=model.p2p_us,
                flights=flights,
                order=order,
                pipelines=grid.degree,
                microbatches=grid.microbatches,
                dead=dead,
            )
            for order in (ORDERS if share else ORDERS[:1])
        ]
    return works


def _stretched(grid: Grid) -> Grid:
    """One whole pipeline in which every stage runs as many microbatches as the fullest survivor."""
    stages = range(len(grid.layers))
    return Grid(1, grid.layers, max(grid.most_microbatches(stage) for stage in stages), (0,) * len(stages))


def _flights(model: ReplanProblem, grid: Grid, filling: bool) -> list[tuple[int, ...]]:
    """How many microbatches a stage may hold: as in 1F1B; and, to fill bubbles, as many as memory does."""
    depth = len(grid.layers)
    shares = [grid.most_microbatches(stage) for stage in range(depth)]
    lean = tuple(min(depth - stage, shares[stage]) for stage in range(depth))
    if not filling:
        return [lean]
    return list(dict.fromkeys([_most_flights(model, grid, lean, shares), lean]))


def _most_flights(model: ReplanProblem, grid: Grid, lean: Sequence[int], shares: Sequence[int]) -> tuple[int, ...]:
    """The activations beside the states that F8 counts, no fewer than 1F1B needs."""
    single = stage_bytes(model, grid.layers, 1)
    most = []
    for stage, count in enumerate(grid.layers):
        apiece = count * model.layer_activation_bytes
        more = (model.memory_bytes - single[stage]) // apiece if apiece else shares[stage]
        most.append(max(lean[stage], min(shares[stage], 1 + more)))
    return tuple(most)
