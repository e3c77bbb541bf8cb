"""The fastest 1F1B partition: equal to trying everything, bounded by what holds, and honest where it is cut short."""

import time
from itertools import product
from typing import Any

import numpy as np
import pytest

from solvers.ir import InvalidInput, Limits
from solvers.partition.fastest import _remaining, _Task, exact_step, search_step
from solvers.partition.instances import random_stage_times
from solvers.partition.pipeline_bounds import path_bounds
from solvers.partition.stage_times import StageTimes, makespans_us, stage_times
from solvers.timeline.pipeline.inputs import Hide
from tests.solvers.check.replan.naive_pipeline import naive_pipeline_us

MODES: tuple[Hide, ...] = ("none", "cooldown", "all")


def random_case(seed: int) -> tuple[StageTimes, dict[str, Any]]:
    """Tables without any order in them, some counts that do not fit, every mode of hiding, hops, few microbatches."""
    source = np.random.default_rng(seed)
    stages, layers = int(source.integers(1, 5)), int(source.integers(3, 9))
    shape = (stages, layers + 1)
    times = stage_times(
        source.integers(0, 20, shape) + 3 * np.arange(layers + 1),
        source.integers(0, 30, shape) + 6 * np.arange(layers + 1),
        recompute_us=source.integers(0, 20, shape),
        forward_hidden_us=source.integers(0, 9, shape),
        may_hide=source.random(shape) < 0.7,
        fits=source.random(shape) < 0.9,
    )
    hops = source.integers(0, 12, stages - 1) if seed % 2 else int(source.integers(0, 5))
    return times, {"microbatches": int(source.integers(1, 9)), "p2p_us": hops, "hide_in_stalls": MODES[seed % 3]}


def partitions(times: StageTimes) -> list[tuple[int, ...]]:
    """All that fit."""
    every = product(range(1, times.layers + 1), repeat=times.stages)
    whole = [layers for layers in every if sum(layers) == times.layers]
    return [layers for layers in whole if all(times.fits[stage, count] for stage, count in enumerate(layers))]


def task_of(times: StageTimes, asked: dict[str, Any]) -> _Task:
    return _Task(times, asked["microbatches"], asked["p2p_us"], asked["hide_in_stalls"], Limits(), time.perf_counter())


def test_two_stages_by_hand() -> None:
    """A layer takes 1 + 2 us, stage 1 has 4 us more: two microbatches of 3 + 1 layers end at 23, of 2 + 2 at 26."""
    count = np.arange(5)
    times = stage_times([count, count], [2 * count, 2 * count + 4])
    found = exact_step(times, 2)
    assert (found.layers, found.makespan_us, found.bound_us, found.exact) == ((3, 1), 23, 23, True)
    assert makespans_us(times, [(1, 3), (2, 2), (3, 1)], 2).tolist() == [29, 26, 23]
    assert naive_pipeline_us([(3, 6), (1, 6)], 2, 0) == 23


def test_it_is_the_fastest_of_all() -> None:
    infeasible = 0
    for seed in range(300):
        times, asked = random_case(seed)
        every = partitions(times)
        found = exact_step(times, **asked)
        if not every:
            assert (found.layers, found.bound_us, found.reason is None) == (None, None, False)
            infeasible += 1
            continue
        steps = makespans_us(times, every, **asked)
        assert (found.makespan_us, found.bound_us, found.exact) == (steps.min(), steps.min(), True), seed
        assert makespans_us(times, [found.layers or ()], **asked)[0] == steps.min()
        near = search_step(times, **asked)
        assert near.makespan_us is not None
        assert near.bound_us is not None
        assert near.bound_us <= steps.min() <= near.makespan_us
        assert not near.exact or near.makespan_us == steps.min()
    assert 0 < infeasible < 60


def test_the_bound_of_every_beginning_holds() -> None:
    """With nothing pruned, the enumeration gives every partition once, none with a bound above its time."""
    met = 0
    for seed in range(300):
        times, asked = random_case(seed)
        every = partitions(times)
        bounds = path_bounds(times, asked["microbatches"], asked["p2p_us"], asked["hide_in_stalls"])
        assert bool(every) == (bounds.least_us < 1 << 60)
        found, lower, complete = _remaining(task_of(times, asked), bounds, (1 << 60) - 1, 10**6)
        assert complete
        assert sorted(map(tuple, found.tolist())) == sorted(every)
        if every:
            steps = makespans_us(times, found, **asked)
            assert (lower <= steps).all(), seed
            assert (lower >= bounds.least_us).all()
            met += int((lower == steps).sum())
    assert met > 300


def test_it_stays_right_where_blocks_and_chunks_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    times = random_stage_times(9, 4, 24)
    whole = exact_step(times, 8)
    monkeypatch.setattr("solvers.partition.fastest.ROWS", 40)
    assert exact_step(times, 8).makespan_us == whole.makespan_us


def test_too_many_candidates_leave_a_bound() -> None:
    """Instance 9 is one whose search is not over at once: a limit of 1 gives the best known and a bound that holds."""
    times = random_stage_times(9, 8, 24)
    best = exact_step(times, 16)
    short = exact_step(times, 16, candidates=1)
    assert best.exact
    assert not short.exact
    assert short.reason == "more than 1 beginnings of partitions ended the exact search"
    assert short.bound_us is not None
    assert best.makespan_us is not None
    assert short.makespan_us is not None
    assert short.bound_us <= best.makespan_us <= short.makespan_us


def test_no_time_leaves_a_partition_and_a_bound() -> None:
    found = exact_step(random_stage_times(1, 16, 96), 64, limits=Limits(time_s=0))
    assert found.layers is not None
    assert found.bound_us is not None
    assert found.makespan_us is not None
    assert found.bound_us < found.makespan_us


def test_the_same_seed_gives_the_same_answer() -> None:
    times = random_stage_times(1, 16, 96)
    first, second = (search_step(times, 32, limits=Limits(seed=4)) for _ in range(2))
    assert (first.layers, first.evaluated) == (second.layers, second.evaluated)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"forward_us": [[1.0, 2]]}, "forward_us is of type float64: give whole microseconds"),
        ({"forward_us": [[0, -2]]}, "forward_us holds -2: times are at least 0"),
        ({"forward_us": [0, 1]}, "the tables have shape"),
        ({"backward_us": [[0, 1, 2]]}, "the tables do not match"),
    ],
)
def test_bad_tables_are_refused(change: dict[str, Any], words: str) -> None:
    arguments = {"forward_us": [[0, 1]], "backward_us": [0, 1], **change}
    with pytest.raises(InvalidInput, match=words):
        stage_times(**arguments)


def test_bad_steps_are_refused() -> None:
    with pytest.raises(InvalidInput, match="microbatches is 0"):
        exact_step(stage_times([[0, 1]], [[0, 1]]), 0)
    for hops in ([1, 2], 0.5, [[1]]):
        with pytest.raises(InvalidInput, match=r"p2p_us has shape .*: give one whole time, or 1 of them"):
            exact_step(stage_times([[0, 1, 2]] * 2, [[0, 1, 2]] * 2), 4, p2p_us=hops)
    with pytest.raises(InvalidInput, match="p2p_us holds -1"):
        exact_step(stage_times([[0, 1, 2]] * 2, [[0, 1, 2]] * 2), 4, p2p_us=-1)
    with pytest.raises(InvalidInput, match="give smaller ones"):
        exact_step(stage_times([[0, 2**50]], [[0, 1]]), 10**6)
