"""The time of a step while rerouting: microbatches of failed nodes go to their stage's survivors (README, estimator).

A simulation by events. Orphaned passes go in turn to the survivors of their stage, so that a survivor gets ⌈its share⌉
at most. A node does what has arrived, earlier microbatches first: a forward while it has begun fewer than P − s
microbatches that it has not ended, else a backward. With nothing failed that is 1F1B, but for a node that would rather
wait for a forward. P − s is what memory F8 counts on, and no node waits for one certain pass: work of several
pipelines cannot lock up.
"""

from collections.abc import Collection, Sequence
from heapq import heappop, heappush
from itertools import cycle, islice
from typing import NamedTuple

from solvers.ir.errors import InvalidInput
from solvers.ir.replan import ReplanProblem
from solvers.replan.estimate.pipeline import stage_times_us

Node = tuple[int, int]
"""A place by pipeline and stage."""


def rerouted_us(
    problem: ReplanProblem,
    layers: Sequence[int],
    microbatches: int,
    failed: Sequence[int],
    degree: int,
    spare: int = 0,
) -> int:
    """T_pipe in µs of `degree` alike pipelines where stage s has lost `failed[s]` nodes, without synchronization.

    They are taken for the first pipelines' nodes; spread over other ones they may cost more (`rerouted_nodes_us`). A
    node may have `spare` microbatches more in flight than F8 counts on. Raises `InvalidInput` where a stage has no
    survivor.
    """
    dead = {(pipeline, stage) for stage, lost in enumerate(failed) for pipeline in range(lost)}
    return rerouted_nodes_us(problem, layers, microbatches, dead, degree, spare)


def rerouted_nodes_us(
    problem: ReplanProblem,
    layers: Sequence[int],
    microbatches: int,
    dead: Collection[Node],
    degree: int,
    spare: int = 0,
) -> int:
    """`rerouted_us` where the nodes at these (pipeline, stage) have failed."""
    survivors = _survivors(dead, len(layers), degree)
    pipelines = _concerned(survivors, microbatches, degree)
    return _Step(problem, layers, microbatches, survivors, pipelines, spare).run()


def rerouted_passes(
    problem: ReplanProblem,
    layers: Sequence[int],
    microbatches: int,
    dead: Collection[Node],
    degree: int,
    spare: int = 0,
) -> tuple["RoutedPass", ...]:
    """Every pass of that step, in order of start."""
    survivors = _survivors(dead, len(layers), degree)
    step = _Step(problem, layers, microbatches, survivors, range(degree), spare)
    step.run()
    return tuple(step.begun)


def _survivors(dead: Collection[Node], depth: int, degree: int) -> list[list[int]]:
    """Of each stage, the pipelines whose node is alive."""
    survivors = [[pipeline for pipeline in range(degree) if (pipeline, stage) not in dead] for stage in range(depth)]
    for stage, alive in enumerate(survivors):
        if not alive:
            raise InvalidInput(
                f"stage {stage} has lost all its {degree} nodes, but rerouting needs one: plan the pipelines anew"
            )
    return survivors


def _concerned(survivors: Sequence[Sequence[int]], microbatches: int, degree: int) -> list[int]:
    """The pipelines with a failed node or with another's work, and one of the others, which are all alike."""
    found: set[int] = set()
    for alive in survivors:
        found.update(set(range(degree)).difference(alive), alive[: microbatches * (degree - len(alive))])
    others = (pipeline for pipeline in range(degree) if pipeline not in found)
    return sorted([*found, *islice(others, 1)])


BACKWARD, FORWARD = 0, 1
Pass = tuple[int, int, int]
"""What a node does: direction, microbatch, pipeline."""


class RoutedPass(NamedTuple):
    """A pass of `pipeline`'s microbatch through a stage, done by the node of `doer`, another one where it failed."""

    stage: int
    doer: int
    forward: bool
    microbatch: int
    pipeline: int
    start_us: int
    end_us: int


class _Node:
    """A survivor: what has arrived, and how many microbatches it has begun and not ended."""

    __slots__ = ("arrived", "busy", "held", "limit", "pipeline", "stage")

    def __init__(self, stage: int, pipeline: int, limit: int) -> None:
        self.stage, self.pipeline, self.limit = stage, pipeline, limit
        self.arrived: tuple[list[Pass], list[Pass]] = ([], [])
        self.held, self.busy = 0, False

    def chosen(self) -> Pass | None:
        """What it begins now, taken from what has arrived."""
        if self.busy:
            return None
        backwards, forwards = self.arrived
        if forwards and self.held < self.limit:
            return heappop(forwards)
        return heappop(backwards) if backwards else None


class _Step:
    """A step of these pipelines as events: time, whether a pass ends or arrives, stage, pass; `begun`: all passes."""

    def __init__(
        self,
        problem: ReplanProblem,
        layers: Sequence[int],
        microbatches: int,
        survivors: Sequence[Sequence[int]],
        pipelines: Sequence[int],
        spare: int,
    ) -> None:
        forward, backward = stage_times_us(problem, layers)
        self.times_us, self.p2p_us = (backward.tolist(), forward.tolist()), problem.p2p_us
        self.last = len(layers) - 1
        self.doers: list[dict[tuple[int, int], _Node]] = []
        for stage, alive in enumerate(survivors):
            limit, living = len(layers) - stage + spare, set(alive)
            nodes = {pipeline: _Node(stage, pipeline, limit) for pipeline in pipelines if pipeline in living}
            self.doers.append(_doers(nodes, microbatches, pipelines))
        self.events = [(0, False, 0, (FORWARD, microbatch, pipeline)) for microbatch, pipeline in sorted(self.doers[0])]
        self.begun: list[RoutedPass] = []

    def run(self) -> int:
        """When the last pass ends; whatever happens at one time happens before a node chooses."""
        now = 0
        while self.events:
            now = self.events[0][0]
            touched: dict[_Node, None] = {}
            while self.events and self.events[0][0] == now:
                _, ends, stage, work = heappop(self.events)
                node = self.doers[stage][work[1:]]
                touched[node] = None
                if ends:
                    self._end(now, node, work)
                else:
                    heappush(node.arrived[work[0]], work)
            for node in touched:
                self._begin(now, node)
        return now

    def _begin(self, now: int, node: _Node) -> None:
        work = node.chosen()
        if work is not None:
            direction, microbatch, pipeline = work
            end = now + self.times_us[direction][node.stage]
            node.busy = True
            heappush(self.events, (end, True, node.stage, work))
            done = RoutedPass(node.stage, node.pipeline, direction == FORWARD, microbatch, pipeline, now, end)
            self.begun.append(done)

    def _end(self, now: int, node: _Node, work: Pass) -> None:
        direction, microbatch, pipeline = work
        node.busy = False
        node.held += 1 if direction == FORWARD else -1
        if direction == FORWARD and node.stage == self.last:
            heappush(self.events, (now, False, node.stage, (BACKWARD, microbatch, pipeline)))
        elif direction == FORWARD:
            heappush(self.events, (now + self.p2p_us, False, node.stage + 1, work))
        elif node.stage > 0:
            heappush(self.events, (now + self.p2p_us, False, node.stage - 1, work))


def _doers(alive: dict[int, _Node], microbatches: int, pipelines: Sequence[int]) -> dict[tuple[int, int], _Node]:
    """Who does (microbatch, pipeline) at a stage: the pipeline's own node, or the survivors in turn."""
    turn = cycle(alive.values())
    return {
        (microbatch, pipeline): alive[pipeline] if pipeline in alive else next(turn)
        for microbatch in range(microbatches)
        for pipeline in pipelines
    }
