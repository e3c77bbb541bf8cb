"""The base of a `pipeline` problem, between two numbers that are equal where all partitions can be tried (15.8)."""

from collections.abc import Iterator
from itertools import combinations, pairwise
from math import comb

from solvers.check.pipeline.step import StageTimes, step_us
from solvers.ir.pipeline import PipelineProblem

MOST_PASSES = 300_000
"""Passes that are walked to try all partitions, or some of them."""
MOST_PAIRS = 4_000_000
"""Stages times pairs of layer counts up to which the bound looks at every stage, else at the busiest one only."""


def base_range_us(problem: PipelineProblem) -> tuple[int, int]:
    """The fastest step without recomputation is at least and at most this long."""
    depth, count = len(problem.stages), problem.layers
    passes = 2 * depth * problem.microbatches
    if comb(count - 1, depth - 1) * passes <= MOST_PASSES:
        ends = [_step_us(problem, layers) for layers in _partitions(count, depth)]
        return min(ends), min(ends)
    low = _path_bound_us(problem)
    return low, max(low, _descended_us(problem, max(1, MOST_PASSES // passes)))


def _partitions(layers: int, depth: int) -> Iterator[list[int]]:
    for cuts in combinations(range(1, layers), depth - 1):
        yield [after - before for before, after in pairwise((0, *cuts, layers))]


def _step_us(problem: PipelineProblem, layers: list[int]) -> int:
    stages = [_times(problem, stage, n) for stage, n in enumerate(layers)]
    return step_us(stages, problem.microbatches, problem.order, problem.p2p_us, "none")


def _times(problem: PipelineProblem, stage: int, layers: int) -> StageTimes:
    forward, backward = problem.stages[stage].extra_us
    return StageTimes(layers * problem.forward_us + forward, layers * problem.backward_us + backward)


def _path_bound_us(problem: PipelineProblem) -> int:
    """A microbatch comes down to a stage, the stage does all its work, the last gradient goes up: for some stage."""
    depth, most = len(problem.stages), problem.layers - len(problem.stages) + 1
    if depth * most * most > MOST_PAIRS:
        whole = sum(sum(_pass_us(problem, stage, 0)) for stage in range(depth))
        whole += problem.layers * (problem.forward_us + problem.backward_us)
        return problem.microbatches * -(-whole // depth)
    after = [0, *[-1] * problem.layers]  # the least bound of the stages behind with k layers; -1: they cannot have k
    for stage in reversed(range(depth)):
        hop = 2 * problem.p2p_us if stage + 1 < depth else 0
        work = [(n, sum(_pass_us(problem, stage, n))) for n in range(1, most + 1)]
        here = [-1] * (problem.layers + 1)
        for k in range(depth - stage, problem.layers - stage + 1):
            found = [
                max(problem.microbatches * us, us + hop + after[k - n])
                for n, us in work
                if n <= k and after[k - n] >= 0
            ]
            here[k] = min(found, default=-1)
        after = here
    return after[problem.layers]


def _pass_us(problem: PipelineProblem, stage: int, layers: int) -> tuple[int, int]:
    times = _times(problem, stage, layers)
    return times.forward_us, times.backward_us


def _descended_us(problem: PipelineProblem, tries: int) -> int:
    """From an even partition, the first move of one layer that helps, again and again."""
    depth = len(problem.stages)
    every, over = divmod(problem.layers, depth)
    layers = [every + (stage < over) for stage in range(depth)]
    best, tries = _step_us(problem, layers), tries - 1
    moves = [(a, b) for a in range(depth) for b in range(depth) if a != b]
    at = since = 0
    while tries > 0 and since < len(moves):
        source, target = moves[at % len(moves)]
        at, since = at + 1, since + 1
        if layers[source] < 2:
            continue
        moved = [n - (stage == source) + (stage == target) for stage, n in enumerate(layers)]
        step, tries = _step_us(problem, moved), tries - 1
        if step < best:
            best, layers, since = step, moved, 0
    return best
