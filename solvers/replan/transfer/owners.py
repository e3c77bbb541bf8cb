"""Which nodes hold which layers after a failure, which layers no node holds, and which nodes are idle.

A node holds a run of consecutive layers with all their states: parameters, and optimizer states unless they are
sharded over the pipelines. A state with a living replica is sent by a peer; one without needs a checkpoint.
"""

from collections.abc import Sequence
from itertools import accumulate, count, islice, pairwise

from solvers.ir.replan import ReplanProblem

Interval = tuple[int, int]
"""Consecutive layers first … end − 1; (0, 0) is nothing."""

NOTHING: Interval = (0, 0)


def intervals(layers: Sequence[int]) -> tuple[Interval, ...]:
    """The layers of each stage of a pipeline, given how many each has."""
    return tuple(pairwise(accumulate(layers, initial=0)))


def layer_bytes(problem: ReplanProblem) -> tuple[int, ...]:
    """Bytes that travel with each layer: layer 0 takes the first stage's own along, the last layer the last stage's."""
    sizes = [problem.layer_static_bytes] * problem.layers
    sizes[0] += problem.first_static_bytes
    sizes[-1] += problem.last_static_bytes
    return tuple(sizes)


def held_layers(problem: ReplanProblem) -> dict[int, Interval]:
    """What each node of `current` that is alive holds; nothing without `current`."""
    if problem.current is None:
        return {}
    failed, runs = set(problem.current.failed), dict[tuple[int, ...], tuple[Interval, ...]]()
    held = dict[int, Interval]()
    for pipeline in problem.current.pipelines:
        if pipeline.layers not in runs:
            runs[pipeline.layers] = intervals(pipeline.layers)
        held.update(zip(pipeline.nodes, runs[pipeline.layers], strict=True))
    return {node: run for node, run in held.items() if node not in failed} if failed else held


def idle_nodes(problem: ReplanProblem) -> tuple[int, ...]:
    """The nodes alive that hold nothing; as the problem only counts them, they get the smallest ids not used yet."""
    known, failed = set[int](), set[int]()
    if problem.current is not None:
        known = {node for pipeline in problem.current.pipelines for node in pipeline.nodes}
        failed = set(problem.current.failed)
    fresh = (node for node in count() if node not in known)
    return tuple(islice(fresh, problem.nodes - len(known - failed)))


def unowned_layers(problem: ReplanProblem) -> tuple[int, ...]:
    """The layers that no node alive holds; none without `current`."""
    if problem.current is None:
        return ()
    owned = {layer for first, end in set(held_layers(problem).values()) for layer in range(first, end)}
    return tuple(layer for layer in range(problem.layers) if layer not in owned)


def checkpoint_reasons(problem: ReplanProblem) -> tuple[str, ...]:
    """Why the states of `current` cannot be had from peers, a sentence each; empty where every state has a replica.

    Layers whose every holder failed are lost, and so is the shard of a failed node where optimizer states are sharded
    (paper IV-B: "we only focus on scenarios where state redundancy exists"). Any decision is then invalid.
    """
    if problem.current is None:
        return ()
    reasons = []
    lost = unowned_layers(problem)
    if lost:
        reasons.append(f"layers {_listed(lost)} of {problem.layers} have no holder alive: load a checkpoint")
    if problem.sharded_optimizer:
        staged = {node for pipeline in problem.current.pipelines for node in pipeline.nodes}
        gone = sorted(staged & set(problem.current.failed))
        if gone:
            reasons.append(f"the optimizer shards of nodes {_listed(gone)} have no replica: load a checkpoint")
    return tuple(reasons)


def _listed(numbers: Sequence[int]) -> str:
    """Ascending numbers with runs shortened: 0-3, 7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
