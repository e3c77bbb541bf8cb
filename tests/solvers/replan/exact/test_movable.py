"""What a stage's best suited node would receive, against all nodes one by one."""

import random
from itertools import pairwise

import msgspec
import pytest

from solvers.ir import CurrentPipeline, CurrentState, ReplanProblem
from solvers.replan.exact.movable import Movable
from solvers.replan.instances import Model
from solvers.replan.transfer.owners import held_layers, layer_bytes
from solvers.replan.transfer.restore import Restorer


def uneven(layers: int, depth: int, data: int, seed: int) -> ReplanProblem:
    """Pipelines that cut the layers anywhere, some nodes lost."""
    source = random.Random(seed)
    pipelines = []
    for number in range(data):
        cuts = [0, *sorted(source.sample(range(1, layers), depth - 1)), layers]
        split = tuple(end - start for start, end in pairwise(cuts))
        nodes = tuple(range(number * depth, (number + 1) * depth))
        pipelines.append(CurrentPipeline(layers=split, nodes=nodes, microbatches=4))
    failed = tuple(source.sample(range(depth * data), data // 2))
    problem = Model(layers=layers).after("uneven", depth, data, 4 * data, failed)
    return msgspec.structs.replace(problem, current=CurrentState(pipelines=tuple(pipelines), failed=failed))


@pytest.mark.parametrize("seed", range(20))
def test_no_node_would_receive_less(seed: int) -> None:
    problem = uneven(12, 4, 3, seed)
    sizes, movable = layer_bytes(problem), Movable(problem)
    for start in range(12):
        for end in range(start + 1, 13):
            least = min(
                sum(sizes[layer] for layer in range(start, end) if not first <= layer < last)
                for first, last in [*held_layers(problem).values(), (0, 0)]
            )
            for load in movable.loads[:-1]:
                within = movable.within(load)
                assert within is not None and bool(within[12 - end, end - start]) == (least <= load)


@pytest.mark.parametrize("seed", range(30))
def test_more_pipelines_than_a_load_allows_keep_some_node_busier(seed: int) -> None:
    """Whatever pipelines are restored, their busiest node receives or sends no less than the load after the last one
    that excludes so many."""
    source = random.Random(seed)
    problem = msgspec.structs.replace(uneven(6, 2, 3, seed), nodes=12, bytes_per_s=10**6)
    movable, restorer = Movable(problem), Restorer(problem)
    told = 0
    for data in range(1, 7):
        layers = source.choice([(3, 3), (2, 4), (4, 2)])
        load = restorer.restore([(layers, 1)] * data).transfer_us  # at a byte a microsecond
        for known, larger in pairwise(movable.loads):
            if movable.pipelines(known) < data:
                told += 1
                assert load >= larger
    assert told, "some numbers of pipelines are excluded"


def test_a_thousand_layers_cut_anywhere_take_a_second() -> None:
    """Node by node this took six."""
    assert len(Movable(uneven(1000, 20, 50, 0)).loads) > 900
