"""The partition kind by trying everything, and tiny random instances of it."""

import random
from collections.abc import Iterator
from itertools import product

from solvers.ir import PartitionProblem


def all_partitions(problem: PartitionProblem) -> Iterator[tuple[tuple[int, ...], int]]:
    """Every partition that fits, with its cost."""
    for layers in product(range(1, problem.layers + 1), repeat=problem.stages):
        costs = [problem.cost_us[stage][count] for stage, count in enumerate(layers)]
        fitting = [cost for cost in costs if cost is not None]
        if sum(layers) == problem.layers and len(fitting) == len(costs):
            yield layers, max(fitting)


def optimum(problem: PartitionProblem) -> int | None:
    """The least cost of any partition; None where none fits."""
    return min((cost for _, cost in all_partitions(problem)), default=None)


def random_problem(seed: int) -> PartitionProblem:
    """Costs that mostly grow with the layers, sometimes not, and a few nulls; some instances have no partition."""
    source = random.Random(seed)
    stages, layers = source.randint(1, 4), source.randint(3, 8)
    holes = source.choice((0.0, 0.05, 0.3))

    def cost(stage: int, count: int) -> int | None:
        if count == 0 or source.random() < holes:
            return None
        return count * source.randint(8, 12) + source.randint(0, 3 * stage) if seed % 4 else source.randint(0, 30)

    return PartitionProblem(
        name=f"random-{seed}",
        stages=stages,
        layers=layers,
        cost_us=tuple(tuple(cost(stage, count) for count in range(layers + 1)) for stage in range(stages)),
    )
