"""When rerouting is a valid decision (formats.md 7.9): alike pipelines, a survivor of every stage, its memory."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from solvers.ir.replan import CurrentPipeline, CurrentState, ReplanProblem
from solvers.replan.estimate.memory import rerouted_stage_bytes


@dataclass(frozen=True)
class Grid:
    """`degree` alike pipelines with these layers a stage and microbatches, `failed[s]` of whose nodes s are gone."""

    degree: int
    layers: tuple[int, ...]
    microbatches: int
    failed: tuple[int, ...]

    def most_microbatches(self, stage: int) -> int:
        """⌈m·D / (D − f)⌉: what a survivor of the stage computes at most, the lost work shared evenly."""
        return -(-self.microbatches * self.degree // (self.degree - self.failed[stage]))


def grid_of(current: CurrentState) -> Grid | None:
    """The running pipelines as a grid; None where they are not alike, or there is none."""
    pipelines = current.pipelines
    if not pipelines or any(not alike(pipelines[0], pipeline) for pipeline in pipelines):
        return None
    gone = set(current.failed)
    failed = [0] * len(pipelines[0].layers)
    for pipeline in pipelines:
        if not gone.isdisjoint(pipeline.nodes):
            for stage, node in enumerate(pipeline.nodes):
                failed[stage] += node in gone
    return Grid(len(pipelines), pipelines[0].layers, pipelines[0].microbatches, tuple(failed))


def places_of(lost: Iterable[Sequence[bool]]) -> tuple[tuple[int, ...], ...]:
    """For each stage the pipelines that have lost their node of it, where `lost[p][s]` says which have.

    Alike pipelines have no names: those that lost most come first, and none that lost the same is told apart.
    """
    patterns = sorted(lost, key=lambda one: (-sum(one), [not gone for gone in one]))
    depth = len(patterns[0]) if patterns else 0
    return tuple(tuple(number for number, one in enumerate(patterns) if one[stage]) for stage in range(depth))


def alike(one: CurrentPipeline, other: CurrentPipeline) -> bool:
    """The same layers on each stage, and as many microbatches."""
    return one.microbatches == other.microbatches and one.layers == other.layers


def why_not_rerouted(problem: ReplanProblem) -> str | None:
    """Why rerouting is no valid decision here, in a sentence; None where it is one."""
    if problem.current is None:
        return "rerouting keeps the running pipelines, but the problem has no current: add it, or re-plan"
    grid = grid_of(problem.current)
    if grid is None:
        return "rerouting needs running pipelines that are alike, but those of current differ: re-plan"
    dead = [stage for stage, failed in enumerate(grid.failed) if failed >= grid.degree]
    if dead:
        return f"stage {dead[0]} has lost all its {grid.degree} nodes, but rerouting needs one: restore a checkpoint"
    return _why_not_counted(problem, grid) or _why_not_fitting(problem, grid)


def _why_not_counted(problem: ReplanProblem, grid: Grid) -> str | None:
    total = grid.degree * grid.microbatches
    if total == problem.microbatches:
        return None
    return f"the running pipelines count {total} microbatches, but a step has {problem.microbatches}: re-plan"


def _why_not_fitting(problem: ReplanProblem, grid: Grid) -> str | None:
    """F8 with the microbatches that a survivor of each stage computes: its own, and those it takes over."""
    for stage, needed in enumerate(rerouted_bytes(problem, grid)):
        if needed > problem.memory_bytes:
            more = grid.most_microbatches(stage) > grid.microbatches
            of_what = "with the microbatches that it takes over" if more else "though it takes over nothing"
            has = problem.memory_bytes
            return f"stage {stage} would need {needed} bytes, {of_what}, but a node has {has}: re-plan"
    return None


def rerouted_bytes(problem: ReplanProblem, grid: Grid) -> Sequence[int]:
    """The peak memory of a survivor of each stage by F8, in bytes."""
    return rerouted_stage_bytes(problem, grid.layers, grid.microbatches, grid.failed, grid.degree)
