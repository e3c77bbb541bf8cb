"""Sessions and planned runs work on shapes alone, and do then what they do with bytes: copies, time, peaks, reports."""

import gc
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch

from experiments.models import GptShape
from runtime.device import SimDevice, memory_stats, reset_peak_memory, use_sim
from runtime.device.native import why_missing
from runtime.swap import IterationSummary, SwapExecutor, release_host_memory, session
from tests.csrc.sim.conftest import ROUND
from tests.runtime.execute.training import Trainee, graph_of, schedule_of, sensible, small, warm

STEPS = 8
BUDGET_SHARE = 0.7


@pytest.fixture(autouse=True)
def with_bytes_again() -> Iterator[None]:
    """Whatever a test did, the next one has bytes."""
    reason = why_missing("runtime._sim")
    if reason is not None:
        pytest.skip(reason)
    yield
    gc.collect()
    use_sim(ROUND)


class Ran(NamedTuple):
    """What can be told of a run without looking at a number of its tensors."""

    peak_bytes: int
    host_ns: int
    device_ns: int
    moved_bytes: tuple[int, int]
    told: Any


def fresh(shapes_only: bool) -> SimDevice:
    """Without the idle blocks of page-locked memory that the run before has left."""
    gc.collect()
    release_host_memory()
    return use_sim(ROUND, shapes_only=shapes_only)


def ran(sim: SimDevice, told: Any) -> Ran:
    counters = sim.counters()
    moved = counters.bytes_to_device, counters.bytes_to_host
    return Ran(memory_stats(sim.device).peak_bytes, sim.host_ns(), sim.now_ns(), moved, told)


def in_a_session(shapes_only: bool) -> Ran:
    sim = fresh(shapes_only)
    _, _, step = GptShape(layers=4, width=64, context=64, batch=4).build(sim.device)
    step()
    reset_peak_memory(sim.device)
    resting = memory_stats(sim.device).allocated_bytes
    step()
    budget = resting + int(BUDGET_SHARE * (memory_stats(sim.device).peak_bytes - resting))
    sim.reset()
    seen: list[IterationSummary] = []
    with session(budget, watch=seen.append):
        for _ in range(STEPS):
            step()
            assert memory_stats(sim.device).peak_bytes <= budget
        sim.synchronize()
    return ran(sim, [(one.peak_bytes, one.operators) for one in seen])


def under_a_plan(shapes_only: bool) -> Ran:
    sim = fresh(shapes_only)

    def make(device: torch.device) -> Trainee:
        return small(device, width=64, depth=3, tokens=128)

    graph = graph_of(make, sim.device)
    executor = SwapExecutor(schedule_of(graph, sensible(graph, 1024)), graph, sim.device)
    trainee = warm(make, sim.device)
    sim.reset()
    done = executor.run(trainee.step)
    assert done.counts.as_planned and done.counts.planned > 0
    return ran(sim, (done.counts, done.report.peak_bytes, done.report.makespan_us))


@pytest.mark.parametrize("run", [in_a_session, under_a_plan])
def test_swapping_moves_shapes_as_it_moves_bytes(run: Any) -> None:
    real, seen = run(False), run(True)
    assert seen == real
    assert real.moved_bytes[1] > 1 << 16
