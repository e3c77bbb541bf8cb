"""Which node takes which stage of the new pipelines, and how long the states travel: few nodes at any scale.

A pipeline that is whole and appears again stays where it is. No assignment moves less: let node i hold the layers S
that stage j needs, but take stage b, while node a takes j. What b needs and a lacks is missing from S, or it is in S
and missing from a: to exchange their stages moves no more. What remains is solved by `restore`, once per structure:
which nodes these are does not matter.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import msgspec

from solvers.ir import CurrentPipeline, CurrentState, ReplanProblem
from solvers.replan.cluster.cluster import Split
from solvers.replan.cluster.state import Placed, Running
from solvers.replan.transfer.restore import restore

HELPERS = 16
"""The most whole pipelines that stay and may also send; more would only share the sending further."""

Layers = tuple[int, ...]
Torn = tuple[Layers, tuple[bool, ...]]
"""Layers per stage, and which of the stages still have their node."""


@dataclass(frozen=True)
class Placement:
    """The new pipelines on nodes, the nodes left over, the transfer time, and the layers that no node alive holds."""

    pipelines: tuple[Placed, ...]
    idle: frozenset[int]
    transfer_us: int
    unowned: tuple[int, ...]


@dataclass(frozen=True)
class _Moves:
    """For a structure: the place of each stage's node in the list of movable nodes, pipeline by pipeline."""

    stages: tuple[tuple[int, ...], ...]
    transfer_us: int
    unowned: tuple[int, ...]


def place(problem: ReplanProblem, running: Running, splits: Sequence[Split], bytes_per_s: int | None) -> Placement:
    """The splits on the nodes of `running` with the least volume of transfers (Kuhn-Munkres, F9).

    There must be a node alive for every stage. `transfer_us` is rounded up; with more than HELPERS pipelines that stay
    it may exceed the least (fewer share the sending), never fall below. `bytes_per_s` None: transfers take no time.
    """
    kept, torn, new = _sort(running, splits)
    helpers, others = (kept[:HELPERS], kept[HELPERS:]) if new else ([], kept)
    idle = sorted(running.idle)
    moves = _moves(
        problem,
        tuple(_structure(pipeline) for pipeline in torn),
        tuple(pipeline.layers for pipeline in helpers),
        tuple(new),
        min(len(idle), sum(len(layers) for layers in new)),
        bytes_per_s,
    )
    nodes = [node for pipeline in [*torn, *helpers] for node in pipeline.nodes if node is not None] + idle
    shapes = [pipeline.layers for pipeline in helpers] + new
    placed = [(pipeline.layers, pipeline.nodes) for pipeline in others]
    placed += [
        (layers, tuple(nodes[place] for place in places)) for layers, places in zip(shapes, moves.stages, strict=True)
    ]
    taken = {place for places in moves.stages for place in places}
    left = frozenset(node for place, node in enumerate(nodes) if place not in taken)
    return Placement(_with_microbatches(placed, splits), left, moves.transfer_us, moves.unowned)


def _sort(running: Running, splits: Sequence[Split]) -> tuple[list[Placed], list[Placed], list[Layers]]:
    """The pipelines that stay, those that are torn up, and the layers of those that are new."""
    wanted = Counter(layers for layers, _ in splits)
    kept: list[Placed] = []
    torn: list[Placed] = []
    for pipeline in running.pipelines:
        stays = pipeline.whole and wanted[pipeline.layers] > 0
        (kept if stays else torn).append(pipeline)
        if stays:
            wanted[pipeline.layers] -= 1
    return kept, sorted(torn, key=_structure), sorted(wanted.elements())


def _structure(pipeline: Placed) -> Torn:
    return pipeline.layers, tuple(node is not None for node in pipeline.nodes)


def _with_microbatches(
    placed: list[tuple[Layers, tuple[int | None, ...]]], splits: Sequence[Split]
) -> tuple[Placed, ...]:
    """Each pipeline takes the microbatches of a split of its layers; which one moves no states."""
    shares: dict[Layers, list[int]] = {}
    for layers, microbatches in splits:
        shares.setdefault(layers, []).append(microbatches)
    return tuple(Placed(layers, nodes, shares[layers].pop()) for layers, nodes in placed)


@lru_cache(maxsize=65536)
def _moves(
    problem: ReplanProblem,
    torn: tuple[Torn, ...],
    helpers: tuple[Layers, ...],
    new: tuple[Layers, ...],
    idle: int,
    bytes_per_s: int | None,
) -> _Moves:
    """Movable nodes are counted through the torn pipelines, then the helpers, then the idle ones."""
    if not new:
        return _Moves((), 0, ())
    alive = sum(sum(there) for _, there in torn) + sum(len(layers) for layers in helpers)
    if alive == 0:
        return _Moves(_in_order(new), 0, tuple(range(problem.layers)))
    whole: list[Torn] = [(layers, (True,) * len(layers)) for layers in helpers]
    state = _state(alive, [*torn, *whole])
    beside = {"restart_us": 0, "bytes_per_s": bytes_per_s or 1, "expected_interval_us": 1}
    torn_problem = msgspec.structs.replace(problem, nodes=alive + idle, current=state, **beside)
    restored = restore(torn_problem, [(layers, 1) for layers in (*helpers, *new)])
    newcomers = sorted({node for pipeline in restored.pipelines for node in pipeline.nodes or () if node >= alive})
    place_of = {node: alive + number for number, node in enumerate(newcomers)}
    stages = [[place_of.get(node, node) for node in pipeline.nodes or ()] for pipeline in restored.pipelines]
    transfer_us = 0 if bytes_per_s is None else -(-restored.transfer_us // 1)
    return _Moves(_settled(stages, len(helpers), [*torn, *whole]), transfer_us, restored.unowned)


def _settled(stages: list[list[int]], helpers: int, pipelines: list[Torn]) -> tuple[tuple[int, ...], ...]:
    """The same with each helper's node where it was, if the node that took its stage holds the same layers.

    The two exchange their stages, which moves neither more nor less. The helpers are the last of `pipelines`, the
    first of `stages`.
    """
    held = _held(pipelines)
    own = len(held) - sum(len(places) for places in stages[:helpers])
    for number in range(helpers):
        for stage in range(len(stages[number])):
            other = stages[number][stage]
            if other != own and other < len(held) and held[other] == held[own]:
                exchange = {own: other, other: own}
                stages = [[exchange.get(place, place) for place in places] for places in stages]
            own += 1
    return tuple(tuple(places) for places in stages)


def _held(pipelines: list[Torn]) -> list[tuple[int, int]]:
    """The first layer of each node alive, and the one after its last."""
    held = []
    for layers, there in pipelines:
        ends = list(accumulate(layers))
        held += [(end - count, end) for count, end, alive in zip(layers, ends, there, strict=True) if alive]
    return held


def _state(alive: int, pipelines: list[Torn]) -> CurrentState:
    """Nodes alive are numbered from 0 in order, those gone from `alive` on."""
    living, gone = iter(range(alive)), iter(range(alive, alive + sum(len(layers) for layers, _ in pipelines)))
    failed: list[int] = []
    current = []
    for layers, there in pipelines:
        nodes = tuple(next(living) if alive_here else next(gone) for alive_here in there)
        failed += [node for node in nodes if node >= alive]
        current.append(CurrentPipeline(layers=layers, nodes=nodes, microbatches=1))
    return CurrentState(pipelines=tuple(current), failed=tuple(failed))


def _in_order(new: tuple[Layers, ...]) -> tuple[tuple[int, ...], ...]:
    counter = iter(range(sum(len(layers) for layers in new)))
    return tuple(tuple(next(counter) for _ in layers) for layers in new)
