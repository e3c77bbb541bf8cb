"""What level splits promise: never more than an order of looking, but a good one."""

import msgspec
import pytest

from solvers.replan.exact.bounds import StageLimits
from solvers.replan.exact.movable import Movable
from solvers.replan.exact.promise import Promises
from solvers.replan.exact.steps import StepTimes
from solvers.replan.instances import Model
from tests.solvers.replan.clusters import PLAIN
from tests.solvers.replan.exact.problems import random_problem


@pytest.mark.parametrize(("depth", "data"), [(4, 8), (4, 16), (8, 32)])
def test_the_fullest_stage_that_promises_most_is_near_the_best(depth: int, data: int) -> None:
    problem = Model(layers=32).problem("promise", depth, data, 16 * data)
    problem = msgspec.structs.replace(problem, memory_bytes=1 << 60, max_depth=32)
    best = StepTimes(problem, Movable(problem), 2000, lambda: False).best(None, 0)
    assert best.time_us is not None
    promises = Promises(StageLimits(problem, problem.layers), range(1, 33))
    chosen = promises.fullest(range(1, 33), lambda number: problem.layer_sync_us * number)
    cutoff = best.time_us * 21 // 20
    slowest = cutoff - problem.sync_us - problem.layer_sync_us * chosen
    within = StageLimits(problem, chosen)
    assert any(within.may_end(number, -(-16 * data * number // (depth * data)), slowest) for number in within.depths)


def test_depths_come_in_the_order_of_their_promise() -> None:
    """Eight alike layers: with few nodes a stage each wastes none, two stages of four wait for each other."""
    problem = msgspec.structs.replace(PLAIN, nodes=8, layers=8, microbatches=64, p2p_us=10**6)
    promises = Promises(StageLimits(problem, 8), range(1, 9))
    assert promises.depths(8) == sorted(range(1, 9)) and promises.depths(2) == [4, 5, 6, 7, 8]
    assert promises.depths(0) == [] and promises.fullest([0], lambda _: 0) == 0


def test_times_of_nothing_are_no_trouble() -> None:
    for seed in range(40):
        problem = msgspec.structs.replace(
            random_problem(seed), forward_us=0, backward_us=0, first_extra_us=(0, 0), last_extra_us=(0, 0), p2p_us=0
        )
        depths = range(1, min(problem.max_depth, problem.nodes, problem.layers) + 1)
        limits = StageLimits(problem, problem.layers)
        chosen = Promises(limits, depths).fullest(range(1, problem.layers + 1), lambda _: 0)
        assert 1 <= chosen <= problem.layers
