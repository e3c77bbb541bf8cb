"""Random small problems, and what is best in them by trying every split and every number of microbatches.

Times of pipelines are the judge's; nothing here is the solver's.
"""

import random
from collections.abc import Callable
from functools import lru_cache

from solvers.check.replan.judge import pipeline_us
from solvers.ir import ReplanProblem
from tests.solvers.replan.brute_force import fits, splits

Allowed = Callable[[tuple[int, ...]], bool]
"""Whether a split may be used."""


def random_problem(seed: int, nodes: int = 9, layers: int = 8) -> ReplanProblem:
    """Without a failure; extras, hops, synchronization and memory from nothing to what decides."""
    source = random.Random(seed)
    count = source.randint(2, layers)
    return ReplanProblem(
        name=f"small {seed}",
        nodes=source.randint(1, nodes),
        microbatches=source.randint(1, 12),
        layers=count,
        forward_us=source.randint(0, 6),
        backward_us=source.randint(1, 9),
        first_extra_us=(source.randint(0, 9), source.randint(0, 9)),
        last_extra_us=(source.randint(0, 20), source.randint(0, 20)),
        p2p_us=source.choice([0, 0, 1, 3, 9]),
        sync_us=source.choice([0, 5, 40]),
        layer_sync_us=source.choice([0, 0, 1, 5, 20]),
        memory_bytes=source.choice([10**6, source.randint(10, 80)]),
        layer_static_bytes=source.randint(1, 9),
        layer_activation_bytes=source.randint(0, 5),
        first_static_bytes=source.randint(0, 9),
        last_static_bytes=source.randint(0, 9),
        max_depth=source.randint(1, 6),
    )


def all_times_us(problem: ReplanProblem, depth: int, microbatches: int, fullest: int) -> dict[tuple[int, ...], int]:
    """Every split that memory and `fullest` allow, and its time."""
    return {
        layers: pipeline_us(problem, layers, microbatches)
        for layers in splits(problem.layers, depth)
        if max(layers) <= fullest and fits(problem, layers, microbatches)
    }


def any_split(_layers: tuple[int, ...]) -> bool:
    """No split is forbidden."""
    return True


def least_step_us(problem: ReplanProblem, allowed: Allowed = any_split, most: int | None = None) -> int | None:
    """The least T_step of all sets of at most `most` pipelines with allowed splits; None where memory holds none."""
    count, fitting = problem.microbatches, _shapes(problem, problem.layers, allowed)
    alone = [fitting.get((depth, count)) for depth in range(1, 10)]
    found = [time_us for depth, time_us in enumerate(alone, 1) if time_us is not None and depth <= problem.nodes]
    for fullest in range(1, problem.layers + 1):
        slowest = _least_slowest_us(problem, fullest, allowed, problem.nodes if most is None else most)
        found += [] if slowest is None else [slowest + problem.sync_us + problem.layer_sync_us * fullest]
    return min(found, default=None)


@lru_cache(maxsize=64)
def _shapes(problem: ReplanProblem, fullest: int, allowed: Allowed) -> dict[tuple[int, int], int]:
    times = {
        (depth, count): min(
            (us for layers, us in all_times_us(problem, depth, count, fullest).items() if allowed(layers)), default=-1
        )
        for depth in range(1, min(problem.max_depth, problem.nodes, problem.layers) + 1)
        for count in range(1, problem.microbatches + 1)
    }
    return {shape: time_us for shape, time_us in times.items() if time_us >= 0}


def _least_slowest_us(problem: ReplanProblem, fullest: int, allowed: Allowed, most: int) -> int | None:
    """The least time of the slowest of two to `most` pipelines, one pipeline added after the other."""
    shapes = _shapes(problem, fullest, allowed)
    reached: dict[tuple[int, int, int], int] = {(0, 0, 0): 0}
    for _ in range(most):
        for (pipelines, nodes, counted), slowest in list(reached.items()):
            for (depth, count), time_us in shapes.items():
                state = (pipelines + 1, nodes + depth, counted + count)
                if state[0] <= most and state[1] <= problem.nodes and state[2] <= problem.microbatches:
                    reached[state] = min(max(slowest, time_us), reached.get(state, 10**12))
    ends = [slowest for state, slowest in reached.items() if state[0] >= 2 and state[2] == problem.microbatches]
    return min(ends, default=None)
