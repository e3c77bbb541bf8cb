"""Peak memory of each stage, F8 [R] with the embedding and the head that the paper leaves out (README)."""

from collections.abc import Sequence

import numpy as np

from solvers.ir.replan import ReplanProblem


def stage_bytes(problem: ReplanProblem, layers: Sequence[int], microbatches: int) -> tuple[int, ...]:
    """Bytes of each stage: l·static + min(P − s, m)·l·activation, and what its end of the model holds besides."""
    return _bytes(problem, layers, [microbatches] * len(layers))


def rerouted_stage_bytes(
    problem: ReplanProblem, layers: Sequence[int], microbatches: int, failed: Sequence[int], degree: int
) -> tuple[int, ...]:
    """`stage_bytes` of the survivors where stage s has lost `failed[s]` < `degree` nodes: m is ⌈m·D/(D − f)⌉ there."""
    return _bytes(problem, layers, [-(-microbatches * degree // (degree - lost)) for lost in failed])


def fits(problem: ReplanProblem, layers: Sequence[int], microbatches: int) -> bool:
    """Whether every stage has the memory that it needs."""
    return max(stage_bytes(problem, layers, microbatches)) <= problem.memory_bytes


def most_layers(problem: ReplanProblem, depth: int, microbatches: int) -> tuple[int, ...]:
    """The most layers that fit each of `depth` stages; 0 where not even one does.

    A split fits if and only if no stage has more than these; they never grow with `microbatches`.
    """
    waiting = np.minimum(np.arange(depth, 0, -1, dtype=np.int64), microbatches)
    unit = problem.layer_static_bytes + waiting * problem.layer_activation_bytes
    free = problem.memory_bytes - np.array(_ends_bytes(problem, depth), dtype=np.int64)
    few = np.where(unit > 0, np.minimum(free // np.maximum(unit, 1), problem.layers), problem.layers)
    return tuple(np.where(free < 0, 0, few).tolist())


def most_microbatches(problem: ReplanProblem, layers: Sequence[int]) -> int:
    """The most microbatches, up to a step's, with which a split fits: stages hold no more than wait there at once."""
    depth, each, most = len(layers), problem.layer_activation_bytes, problem.microbatches
    for stage, (count, held) in enumerate(zip(layers, _ends_bytes(problem, depth), strict=True)):
        free, one = problem.memory_bytes - held - count * problem.layer_static_bytes, count * each
        if free < one * min(depth - stage, most):
            most = max(0, free // one) if one else 0
    return most


def least_depth(problem: ReplanProblem) -> int | None:
    """The fewest stages that hold all layers with one microbatch; None if no depth up to `max_depth` does.

    With one microbatch all depths from there on fit too (up to a layer a stage). With more, none below it does, but a
    longer pipeline has more in flight and may not fit either.
    """
    longest = min(problem.max_depth, problem.layers)
    if most_layers(problem, 1, 1)[0] >= problem.layers:
        return 1
    if longest < 2:
        return None
    first, last = most_layers(problem, 2, 1)
    if not (first and last):
        return None
    missing = problem.layers - first - last
    if missing <= 0:
        return 2
    middle = _most(problem, problem.layer_static_bytes + problem.layer_activation_bytes, 0)
    depth = 2 - (-missing // middle) if middle else None
    return depth if depth is not None and depth <= longest else None


def _bytes(problem: ReplanProblem, layers: Sequence[int], microbatches: Sequence[int]) -> tuple[int, ...]:
    depth = len(layers)
    return tuple(
        count * (problem.layer_static_bytes + min(depth - stage, own) * problem.layer_activation_bytes) + held
        for stage, (count, own, held) in enumerate(zip(layers, microbatches, _ends_bytes(problem, depth), strict=True))
    )


def _ends_bytes(problem: ReplanProblem, depth: int) -> list[int]:
    """What the first stage holds of the embedding and the last of the head; a single stage holds both."""
    held = [0] * depth
    held[0] += problem.first_static_bytes
    held[-1] += problem.last_static_bytes
    return held


def _most(problem: ReplanProblem, layer_bytes: int, held_bytes: int) -> int:
    free = problem.memory_bytes - held_bytes
    if free < 0:
        return 0
    return min(free // layer_bytes, problem.layers) if layer_bytes else problem.layers
