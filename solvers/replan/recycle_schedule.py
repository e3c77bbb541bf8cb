"""ReCycle's step as an explicit schedule: rerouted microbatches in bubbles, weight gradients apart, staggered updates.

Every node runs what is ready, backward passes first; a rerouted microbatch is one more on a peer of its stage.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

Places = tuple[tuple[int, ...], ...]
"""For each stage the pipelines that have lost their node of it, ascending."""
Batch = tuple[int, int]
"""A microbatch: its number in its home pipeline, and that pipeline."""

FORWARD, BACKWARD, WEIGHTS = 0, 1, 2
KINDS = (FORWARD, BACKWARD, WEIGHTS)


@dataclass(frozen=True)
class Work:
    """What a step computes, in microseconds per stage and microbatch.

    `weights_us` is the part of the backward pass that no other stage waits for (the weights' gradients; 0: not apart),
    `backward_us` the rest; `flights[s]`: the microbatches whose activations a node of stage s may hold at once;
    `order`: which kinds of passes a node prefers. The pipelines of `dead[s]`, ascending, lost their node of stage s.
    """

    forward_us: tuple[int, ...]
    backward_us: tuple[int, ...]
    weights_us: tuple[int, ...]
    hop_us: int
    flights: tuple[int, ...]
    order: tuple[int, int, int]
    pipelines: int
    microbatches: int
    dead: Places

    def executors(self, stage: int) -> list[list[int]]:
        """By number and home pipeline, whose node runs the microbatch at this stage: the home's, or a peer's in turn.

        Orphaned microbatches go to the living peers one after the other, those of one home pipeline together.
        """
        gone = set(self.dead[stage])
        alive = [pipeline for pipeline in range(self.pipelines) if pipeline not in gone]
        turns = {home: turn for turn, home in enumerate(self.dead[stage])}
        return [
            [
                alive[(turns[home] * self.microbatches + number) % len(alive)] if home in gone else home
                for home in range(self.pipelines)
            ]
            for number in range(self.microbatches)
        ]


class Pass(NamedTuple):
    """A pass as it runs: on the node of this pipeline and stage, of this kind, for this microbatch."""

    start_us: int
    end_us: int
    pipeline: int
    stage: int
    kind: int
    batch: Batch


def scheduled(work: Work) -> list[Pass]:
    """All passes in the order in which they begin, no node idling while it may run something; deterministic.

    Never stuck: a microbatch that a stage holds needs only later stages to come back, and the last one holds none back.
    """
    return _Making(work).passes()


def windows(passes: Iterable[Pass], depth: int) -> tuple[list[int], list[int]]:
    """When the nodes of each stage begin their first pass at the earliest, and end their last one at the latest."""
    starts: list[int | None] = [None] * depth
    ends = [0] * depth
    for start, end, _, stage, _, _ in passes:
        if starts[stage] is None:
            starts[stage] = start
        if end > ends[stage]:
            ends[stage] = end
    return [start or 0 for start in starts], ends


Event = tuple[int, int, int, int, bool]
"""Time, node, kind of pass, microbatch, and whether it ended (or else became ready)."""


class _Making:
    """The schedule being made, event by event.

    Node p·P + s is that of stage s in pipeline p, microbatch number·D + home that of a home pipeline: plain numbers,
    because some hundred thousand passes are made while a cluster waits.
    """

    def __init__(self, work: Work) -> None:
        self.work = work
        self.depth = len(work.forward_us)
        count = self.depth * work.pipelines
        self.ready: list[tuple[list[int], list[int], list[int]]] = [([], [], []) for _ in range(count)]
        self.holds = [0] * count
        self.busy = [False] * count
        self.events: list[Event] = []
        self.made: list[Pass] = []
        self.durations = (work.forward_us, work.backward_us, work.weights_us)
        self.runs_on = [
            [pipeline * self.depth + stage for row in work.executors(stage) for pipeline in row]
            for stage in range(self.depth)
        ]

    def passes(self) -> list[Pass]:
        """Run all events; those of one moment first, then the nodes that they concern choose."""
        events = self.events
        for batch, node in enumerate(self.runs_on[0]):
            heappush(events, (0, node, FORWARD, batch, False))
        while events:
            now = events[0][0]
            concerned: set[int] = set()
            while events and events[0][0] == now:
                _, node, kind, batch, ended = heappop(events)
                concerned.add(node)
                if ended:
                    self._end(now, node, kind, batch)
                else:
                    heappush(self.ready[node][kind], batch)
            for node in sorted(concerned):
                if not self.busy[node]:
                    self._choose(now, node)
        return self.made

    def _end(self, now: int, node: int, kind: int, batch: int) -> None:
        """A pass has ended: its node is free, and what waited for it is on its way."""
        self.busy[node] = False
        stage = node % self.depth
        if kind == FORWARD:
            if stage == self.depth - 1:
                heappush(self.ready[node][BACKWARD], batch)
            else:
                self._send(now, stage + 1, FORWARD, batch)
            return
        if kind == BACKWARD:
            if stage > 0:
                self._send(now, stage - 1, BACKWARD, batch)
            if self.work.weights_us[stage] > 0:
                heappush(self.ready[node][WEIGHTS], batch)
                return
        self.holds[node] -= 1

    def _send(self, now: int, stage: int, kind: int, batch: int) -> None:
        heappush(self.events, (now + self.work.hop_us, self.runs_on[stage][batch], kind, batch, False))

    def _choose(self, now: int, node: int) -> None:
        """The node begins the most preferred kind of pass that is ready, the lowest microbatch first."""
        pipeline, stage = divmod(node, self.depth)
        ready = self.ready[node]
        for kind in self.work.order:
            if ready[kind] and (kind != FORWARD or self.holds[node] < self.work.flights[stage]):
                batch = heappop(ready[kind])
                self.busy[node] = True
                self.holds[node] += kind == FORWARD
                end = now + self.durations[kind][stage]
                self.made.append(Pass(now, end, pipeline, stage, kind, divmod(batch, self.work.pipelines)))
                heappush(self.events, (end, node, kind, batch, True))
                return
