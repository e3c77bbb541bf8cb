"""One step of a plan: the passes of every pipeline under 1F1B, and the rounds that synchronize its layers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from solvers.ir.errors import InvalidInput
from solvers.ir.replan import CurrentState, NewPipeline, ReplanPlan, ReplanProblem
from solvers.replan.estimate.memory import rerouted_stage_bytes, stage_bytes
from solvers.replan.estimate.pipeline import stage_times_us
from solvers.replan.estimate.rerouting import RoutedPass, rerouted_passes
from solvers.replan.transfer.collectives import rounds
from solvers.timeline import PipelineTimes, pipeline

MOST_PASSES = 1_000_000
"""Forward and backward passes of all nodes in a step; more cannot be drawn."""


class Drawn(NamedTuple):
    """A bar of the drawing: where, what, and when in µs."""

    lane: str
    label: str
    start_us: int
    end_us: int

    def later(self, by_us: int) -> "Drawn":
        """The same bar after what comes before the step."""
        return self._replace(start_us=self.start_us + by_us, end_us=self.end_us + by_us)


@dataclass(frozen=True)
class Step:
    """A step, from 0 µs: the end of the slowest pipeline, the synchronization after it, and every bar.

    `busy_us` is what each node with a stage computes, `held_bytes` what the stages hold at their peak (F8), `rounds`
    how many synchronize layers; `how` says what it is.
    """

    how: str
    compute_us: int
    sync_us: int
    rounds: int
    busy_us: dict[int, int]
    held_bytes: tuple[int, ...]
    drawn: tuple[Drawn, ...]


def require_drawable(passes: int) -> None:
    """Refuse a step with too many passes to be drawn."""
    if passes > MOST_PASSES:
        raise InvalidInput(
            f"the step has {passes} passes on its nodes, more than the {MOST_PASSES} that can be drawn: simulate a "
            "problem with fewer microbatches"
        )


def dynamic_step(problem: ReplanProblem, plan: ReplanPlan) -> Step:
    """Every pipeline of the plan at once, each by the recurrence F5; unmapped stages get the next free numbers."""
    require_drawable(sum(2 * len(one.layers) * one.microbatches for one in plan.pipelines))

    @cache
    def times(layers: tuple[int, ...], microbatches: int) -> PipelineTimes:
        forward, backward = stage_times_us(problem, layers)
        return pipeline(forward, backward, microbatches=microbatches, p2p_us=problem.p2p_us)

    named = list(zip(plan.pipelines, node_numbers(plan.pipelines), strict=True))
    compute = max(int(times(one.layers, one.microbatches).makespan_us) for one in plan.pipelines)
    busy: dict[int, int] = {}
    drawn: list[Drawn] = []
    for one, nodes in named:
        found = times(one.layers, one.microbatches)
        busy.update(zip(nodes, map(int, found.busy_us), strict=True))
        drawn += _passes(found, nodes)
    held = [nodes_held for one, _ in named for nodes_held in stage_bytes(problem, one.layers, one.microbatches)]
    sync = synchronization(problem, [(one.layers, nodes) for one, nodes in named])
    return Step(
        how=f"1F1B, {len(plan.pipelines)} pipelines on {len(busy)} of {problem.nodes} nodes",
        compute_us=compute,
        sync_us=max((bar.end_us for bar in sync.drawn), default=0),
        rounds=sync.rounds,
        busy_us=busy,
        held_bytes=tuple(held),
        drawn=(*drawn, *(bar.later(compute) for bar in sync.drawn)),
    )


def rerouted_step(problem: ReplanProblem, current: CurrentState) -> Step:
    """The running pipelines, alike, with the passes of failed nodes shared by their stages' survivors, as by events."""
    first, degree = current.pipelines[0], len(current.pipelines)
    require_drawable(2 * degree * len(first.layers) * first.microbatches)
    nodes = {
        (number, stage): node for number, one in enumerate(current.pipelines) for stage, node in enumerate(one.nodes)
    }
    failed = set(current.failed)
    dead = {place for place, node in nodes.items() if node in failed}
    passes = rerouted_passes(problem, first.layers, first.microbatches, dead, degree)
    busy = {node: 0 for place, node in nodes.items() if place not in dead}
    for one in passes:
        busy[nodes[one.doer, one.stage]] += one.end_us - one.start_us
    compute = max(one.end_us for one in passes)
    lost = [sum((number, stage) in dead for number in range(degree)) for stage in range(len(first.layers))]
    alive = [tuple(None if node in failed else node for node in one.nodes) for one in current.pipelines]
    sync = synchronization(problem, [(first.layers, row) for row in alive])
    return Step(
        how=f"1F1B with passes rerouted, {degree} pipelines on {len(busy)} of {problem.nodes} nodes",
        compute_us=compute,
        sync_us=max((bar.end_us for bar in sync.drawn), default=0),
        rounds=sync.rounds,
        busy_us=busy,
        held_bytes=rerouted_stage_bytes(problem, first.layers, first.microbatches, lost, degree),
        drawn=(*(_routed(one, nodes) for one in passes), *(bar.later(compute) for bar in sync.drawn)),
    )


def _routed(one: RoutedPass, nodes: dict[tuple[int, int], int]) -> Drawn:
    kind = "forward" if one.forward else "backward"
    label = f"{kind} microbatch {one.microbatch} of pipeline {one.pipeline}"
    if one.doer != one.pipeline:
        label = f"rerouted {label}"
    return Drawn(f"{nodes[one.doer, one.stage]}.compute", label, one.start_us, one.end_us)


def node_numbers(pipelines: Sequence[NewPipeline]) -> list[tuple[int, ...]]:
    """The nodes of each pipeline; where they are not mapped, numbers that no other stage has."""
    taken = {node for one in pipelines for node in one.nodes or ()}
    free = (number for number in range(len(taken) + sum(len(one.layers) for one in pipelines)) if number not in taken)
    return [one.nodes if one.nodes is not None else tuple(next(free) for _ in one.layers) for one in pipelines]


def _passes(times: PipelineTimes, nodes: Sequence[int]) -> Iterator[Drawn]:
    both = (
        ("forward", times.forward_start_us.tolist(), times.forward_end_us.tolist()),
        ("backward", times.backward_start_us.tolist(), times.backward_end_us.tolist()),
    )
    for stage, node in enumerate(nodes):
        for kind, starts, ends in both:
            for number, (start, end) in enumerate(zip(starts[stage], ends[stage], strict=True)):
                yield Drawn(f"{node}.compute", f"{kind} microbatch {number}", start, end)


class Synchronization(NamedTuple):
    """The bars of a step's all-reduces from 0 µs on, and in how many rounds the layers are summed."""

    drawn: tuple[Drawn, ...]
    rounds: int


def synchronization(
    problem: ReplanProblem, pipelines: Sequence[tuple[tuple[int, ...], Sequence[int | None]]]
) -> Synchronization:
    """`layer_sync_us` for each round, in which a node sums at most one layer, then `sync_us`; none for one pipeline.

    Pipelines as layers and node of each stage; a stage without a node (None) takes no part.
    """
    if len(pipelines) < 2:
        return Synchronization((), 0)
    owners: dict[int, list[int]] = {}
    everyone = [node for _, nodes in pipelines for node in nodes if node is not None]
    for layers, nodes in pipelines:
        last = 0
        for count, node in zip(layers, nodes, strict=True):
            first, last = last, last + count
            if node is not None:
                for layer in range(first, last):
                    owners.setdefault(layer, []).append(node)
    drawn: list[Drawn] = []
    found = rounds([layers for layers, _ in pipelines])
    for number, together in enumerate(found if problem.layer_sync_us else ()):
        start = number * problem.layer_sync_us
        for layer in sorted(together):
            for node in owners.get(layer, ()):
                drawn.append(Drawn(f"{node}.comm", f"all-reduce layer {layer}", start, start + problem.layer_sync_us))
    begin = len(found) * problem.layer_sync_us
    if problem.sync_us:
        drawn += [Drawn(f"{node}.comm", "synchronization", begin, begin + problem.sync_us) for node in everyone]
    return Synchronization(tuple(drawn), len(found))
