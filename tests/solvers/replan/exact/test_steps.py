"""The least T_step against every set of pipelines, and against CP-SAT on the same times."""

import random
from functools import partial

import msgspec
import pytest

from solvers.ir import Limits, ReplanProblem
from solvers.replan.estimate.objective import step_us
from solvers.replan.exact.crosscheck import least_step_us as by_cpsat
from solvers.replan.exact.movable import Movable
from solvers.replan.exact.step import NEVER_US
from solvers.replan.exact.steps import StepTimes
from solvers.replan.instances import Model
from solvers.replan.transfer.owners import held_layers, intervals, layer_bytes
from tests.solvers.replan.brute_force import least_still_step_us, unlike_problem
from tests.solvers.replan.exact.problems import least_step_us, random_problem

ANY_LOAD = 10**18


def _times(problem: ReplanProblem) -> StepTimes:
    return StepTimes(problem, Movable(problem), 2000, lambda: False)


@pytest.mark.parametrize("seed", range(80))
def test_no_set_of_pipelines_has_a_shorter_step(seed: int) -> None:
    problem = random_problem(seed)
    least, found = least_step_us(problem), _times(problem).best(None, ANY_LOAD)
    assert found.time_us == least
    assert found.bound_us == (NEVER_US if least is None else least)
    if least is not None:
        assert step_us(problem, found.splits) == least
        nothing, again = _times(problem).best(least, ANY_LOAD), _times(problem).best(least + 1, ANY_LOAD)
        assert (nothing.splits, nothing.bound_us) == ((), least)
        assert (again.time_us, again.bound_us) == (least, least)


@pytest.mark.parametrize(
    ("depth", "data", "lost", "memory_gib", "layer_sync"),
    [(4, 2, 1, 64, True), (4, 4, 1, 40, False), (4, 8, 3, 64, False), (4, 16, 7, 40, False)],
)
def test_cpsat_finds_the_same_step(depth: int, data: int, lost: int, memory_gib: int, layer_sync: bool) -> None:
    """Up to 64 nodes, with a head, hops and memory that shape the splits."""
    problem = msgspec.structs.replace(
        Model(layers=16).problem("check", depth, data, 4 * data),
        nodes=depth * data - lost,
        memory_bytes=memory_gib << 30,
        max_depth=6,
    )
    if not layer_sync:
        problem = msgspec.structs.replace(problem, layer_sync_us=0, sync_us=5000)
    found = _times(problem).best(None, ANY_LOAD)
    assert found.time_us == found.bound_us
    assert by_cpsat(problem, found.time_us, Limits(time_s=60)) == found.time_us
    assert by_cpsat(problem, found.time_us - 1, Limits(time_s=60)) is None


def _sixty_four(seed: int) -> ReplanProblem:
    """Up to 64 nodes: a head or none, memory that decides or does not, hops, synchronization by layers or not."""
    source = random.Random(seed)
    head, scarce, nodes = source.random() < 0.5, source.random() < 0.5, source.randint(10, 64)
    problem = random_problem(seed, layers=source.choice([7, 10]))
    problem = msgspec.structs.replace(
        problem,
        nodes=nodes,
        microbatches=source.randint(nodes // 3, nodes),
        max_depth=source.randint(2, 5),
        memory_bytes=source.randint(20, 70) if scarce else 10**6,
    )
    return problem if head else msgspec.structs.replace(problem, last_extra_us=(0, 0), last_static_bytes=0)


def _agrees_with_cpsat(seed: int) -> None:
    problem, limits = _sixty_four(seed), Limits(time_s=60)
    found = _times(problem).best(None, ANY_LOAD)
    if found.time_us is None:
        assert found.bound_us == NEVER_US
        assert by_cpsat(problem, 10**9, limits) is None
        return
    assert found.bound_us == found.time_us
    assert by_cpsat(problem, found.time_us, limits) == found.time_us
    assert by_cpsat(problem, found.time_us - 1, limits) is None


@pytest.mark.parametrize("seed", range(12))
def test_cpsat_agrees_on_clusters_of_up_to_64_nodes(seed: int) -> None:
    _agrees_with_cpsat(seed)


@pytest.mark.soak
def test_cpsat_agrees_on_many_clusters_of_up_to_64_nodes() -> None:
    for seed in range(12, 300):
        _agrees_with_cpsat(seed)


@pytest.mark.parametrize("seed", range(30))
def test_with_little_to_receive_no_pipelines_have_a_shorter_step(seed: int) -> None:
    """After failures: splits of which every stage can be taken over so, no more pipelines than can be sent."""
    problem = unlike_problem(seed)
    movable, times, sizes = Movable(problem), _times(problem), layer_bytes(problem)
    held = [*held_layers(problem).values(), (0, 0)]

    def within(load: int, layers: tuple[int, ...]) -> bool:
        return all(
            min(sum(sizes[layer] for layer in range(*run) if not first <= layer < end) for first, end in held) <= load
            for run in intervals(layers)
        )

    for load in [load for load in movable.loads if load >= min(sizes)]:
        least = least_step_us(problem, partial(within, load), movable.pipelines(load))
        found = times.best(None, load)
        assert found.time_us == least
        assert found.bound_us == (NEVER_US if least is None else least)


def test_a_search_that_is_stopped_at_once_still_plans_and_bounds() -> None:
    problem = Model(layers=32).problem("stopped", 4, 8, 64)
    stopped = StepTimes(problem, Movable(problem), 2000, lambda: True).best(None, ANY_LOAD)
    least = _times(problem).best(None, ANY_LOAD)
    assert stopped.time_us is not None and least.time_us is not None
    assert stopped.bound_us <= least.time_us <= stopped.time_us


def test_what_needs_no_transfer_is_never_excluded() -> None:
    """With loads below the smallest layer, idle nodes serve nothing, and pipelines are as many as a layer's owners."""
    still = fewer = 0
    for seed in range(80):
        problem = unlike_problem(seed)
        least = least_still_step_us(problem)
        movable = Movable(problem)
        for load in (load for load in movable.loads if load < min(layer_bytes(problem))):
            found = _times(problem).best(None, load)
            assert least is None or found.bound_us <= least
            assert found.bound_us <= (found.time_us or NEVER_US)
            still += least is not None
            fewer += least is not None and movable.pipelines(load) < problem.nodes
    assert still >= 25 and fewer >= 15
