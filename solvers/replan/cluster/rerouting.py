"""How long a step takes when the peers of failed nodes take over their microbatches: laws that policies choose from."""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

from solvers.ir import ReplanProblem
from solvers.replan.cluster.state import Running
from solvers.replan.estimate.pipeline import stage_times_us
from solvers.replan.estimate.rerouting import rerouted_nodes_us
from solvers.replan.estimate.sync import sync_us
from solvers.replan.recycle_schedule import Places
from solvers.replan.recycle_times import first_places
from solvers.replan.rerouting_rules import Grid, places_of, rerouted_bytes


class ReroutingLaw(Protocol):
    """`Recycle` of this room is one too. `places`: which pipelines lost their node of each stage; None: the first."""

    def __hash__(self) -> int:
        """Results are remembered by law and structure."""
        ...

    def step_us(
        self,
        problem: ReplanProblem,
        layers: tuple[int, ...],
        microbatches: int,
        failed: tuple[int, ...],
        degree: int,
        places: Places | None = None,
    ) -> int | None:
        """A step's time, synchronization included, where `failed[s]` of the `degree` nodes of stage s are gone."""
        ...


@dataclass(frozen=True)
class PaperRerouting:
    """[R] F7, rounded up: (B / min_s (D − f_s) + P − 1) · (forward + backward of the slowest stage) + synchronization.

    B / D are the microbatches of a pipeline; where D does not divide B, the pipeline with most of them is the least.
    """

    def step_us(
        self,
        problem: ReplanProblem,
        layers: tuple[int, ...],
        microbatches: int,
        failed: tuple[int, ...],
        degree: int,
        places: Places | None = None,
    ) -> int | None:
        """None where a stage has no survivor; places do not matter."""
        survivors = degree - max(failed)
        if survivors < 1:
            return None
        most = max(Fraction(microbatches), Fraction(problem.microbatches, survivors))
        forward, backward = stage_times_us(problem, layers)
        step = (most + len(layers) - 1) * int((forward + backward).max())
        return -(-step // 1) + sync_us(problem, [layers] * degree)


@dataclass(frozen=True)
class SimulatedRerouting:
    """The event simulation of rerouted 1F1B (estimate/rerouting.py): whole microbatches, extra hops."""

    def step_us(
        self,
        problem: ReplanProblem,
        layers: tuple[int, ...],
        microbatches: int,
        failed: tuple[int, ...],
        degree: int,
        places: Places | None = None,
    ) -> int | None:
        """None where a stage has no survivor."""
        if max(failed) >= degree:
            return None
        lost = first_places(failed) if places is None else places
        dead = {(pipeline, stage) for stage, gone in enumerate(lost) for pipeline in gone}
        return rerouted_nodes_us(problem, layers, microbatches, dead, degree) + sync_us(problem, [layers] * degree)


def rerouted_step_us(problem: ReplanProblem, running: Running, law: ReroutingLaw) -> int | None:
    """The step of the running pipelines with their gaps; None where rerouting cannot go on.

    It needs pipelines alike in their layers, a survivor of every stage, memory for what that takes over (F8), and
    optimizer states of which copies exist.
    """
    pipelines = running.pipelines
    if not pipelines or any(pipeline.layers != pipelines[0].layers for pipeline in pipelines):
        return None
    places = places_of([[node is None for node in pipeline.nodes] for pipeline in pipelines])
    failed = tuple(map(len, places))
    if problem.sharded_optimizer and any(failed):
        return None
    most = max(pipeline.microbatches for pipeline in pipelines)
    return _step_us(problem, Grid(len(pipelines), pipelines[0].layers, most, failed), places, law)


@lru_cache(maxsize=65536)
def _step_us(problem: ReplanProblem, grid: Grid, places: Places, law: ReroutingLaw) -> int | None:
    if max(grid.failed) >= grid.degree:
        return None
    if max(rerouted_bytes(problem, grid)) > problem.memory_bytes:
        return None
    return law.step_us(problem, grid.layers, grid.microbatches, grid.failed, grid.degree, places)
