"""Plans keep their budget on segments, or are refused by a sentence before a step begins."""

from dataclasses import replace as changed

import msgspec
import pytest
import torch

from runtime.device import limited_memory, memory_stats, sim_hardware, use_sim
from runtime.device.held import held_memory
from runtime.device.native import why_missing
from runtime.swap import StepDiffers, SwapExecutor
from solvers.ir import codec
from solvers.ir.errors import InvalidInput
from solvers.ir.graph import OpGraph
from solvers.ir.requests import StepRequests, in_use
from solvers.planner import planner
from solvers.timeline.segments import SegmentSettings, held_by_steps
from tests.runtime.swap.segments.planned_programs import WIDE
from tests.runtime.swap.segments.plans import EVERY, MIB, line, plain, planned, profiled, ready, trials
from tests.runtime.swap.segments.programs import Trained, perceptron, regression

pytestmark = pytest.mark.skipif(why_missing("runtime._sim") is not None, reason=str(why_missing("runtime._sim")))
SMALL = regression(perceptron([128] * 9), 4096, 128)
"""Sixteen activations of 2 MiB."""


def started(expandable: bool) -> tuple[Trained, torch.device]:
    device = ready(expandable)
    return SMALL(device), device


@pytest.mark.parametrize("expandable", [False, True])
def test_the_replay_holds_what_the_device_holds(expandable: bool) -> None:
    (trained, device), losses = started(expandable), list[torch.Tensor]()
    graph = profiled(trained, device, losses)
    schedule = planner("greedy-swap")(
        msgspec.structs.replace(graph, requests=msgspec.UNSET), sim_hardware(), "70%"
    ).plan
    assert schedule is not None
    foretold = held_by_steps(graph, schedule, SegmentSettings(expandable=expandable))
    executor = SwapExecutor(schedule, graph)
    for _ in range(3):
        assert executor.run(trained.step).counts.as_planned
    stats = memory_stats(device)
    assert foretold.reserved_peak == stats.reserved_peak_bytes and foretold.settles and stats.retries == 0
    assert abs(foretold.allocated_peak - stats.peak_bytes) <= 4096, "losses are kept, three in the replay"
    use_sim()


def test_requests_are_told_where_memory_comes_in_segments() -> None:
    (trained, device), losses = started(expandable=False), list[torch.Tensor]()
    graph = profiled(trained, device, losses)
    told = graph.requests
    assert isinstance(told, StepRequests) and not told.expandable
    assert codec.document_from_raw(codec.document_to_raw(graph), OpGraph, "the test") == graph
    held, stats = held_memory(device), memory_stats(device)
    assert held is not None
    assert sum(size for run in held.runs for size, _ in run.blocks) == stats.reserved_bytes
    assert sum(in_use(held.runs).values()) == stats.allocated_bytes
    assert sum(in_use(told.runs).values()) == stats.allocated_bytes
    exact = use_sim().device
    assert held_memory(exact) is None
    assert profiled(SMALL(exact), exact, []).requests is msgspec.UNSET


def test_a_plan_of_bytes_is_refused_before_its_step_begins() -> None:
    trained, device = started(expandable=False)
    graph = profiled(trained, device, [])
    budget = int(0.7 * max(graph.memory_bytes))
    schedule = planner("greedy-swap")(
        msgspec.structs.replace(graph, requests=msgspec.UNSET), sim_hardware(), budget
    ).plan
    executor = SwapExecutor(schedule, graph)
    begun: list[int] = []

    def step() -> torch.Tensor:
        begun.append(1)
        return trained.step()

    with limited_memory(device, budget), pytest.raises(InvalidInput, match=r"need \d+ bytes of segments") as caught:
        executor.run(step)
    assert not begun
    least = int(str(caught.value).split(" bytes of segments")[0].split()[-1])
    assert least > budget
    with limited_memory(device, least):
        for _ in range(3):
            executor.run(step)
    assert memory_stats(device).reserved_peak_bytes <= least and memory_stats(device).ooms == 0
    use_sim()


def test_a_profile_in_exact_bytes_says_that_it_knows_too_little() -> None:
    """The plan itself fits; what is refused is what such a profile tells of it."""
    exact = use_sim().device
    graph = profiled(SMALL(exact), exact, [])
    budget = int(0.6 * max(graph.memory_bytes))
    schedule = planner("greedy-swap")(graph, sim_hardware(), budget).plan
    trained, device = started(expandable=False)
    executor = SwapExecutor(schedule, graph)
    with limited_memory(device, budget), pytest.raises(InvalidInput, match="as far as a profile in exact bytes tells"):
        executor.run(trained.step)
    use_sim()


def test_a_step_that_finds_no_segment_says_how_much_is_held() -> None:
    """The step hoards what no operator made, so that the profile cannot be told from it."""
    trained, device = started(expandable=False)
    graph = profiled(trained, device, [])
    answer = planner("greedy-swap")(graph, sim_hardware(), "75%")
    executor, hoard = SwapExecutor(answer.plan, graph), list[torch.Tensor]()

    def step() -> torch.Tensor:
        hoard.append(torch.empty(15 * MIB, dtype=torch.uint8, device=device))
        return trained.step()

    budget = int(0.75 * max(graph.memory_bytes))
    with (
        limited_memory(device, budget),
        pytest.raises(StepDiffers, match=r"bytes of segments for \d+ bytes of tensors"),
    ):
        executor.run(step)
    use_sim()


def test_a_slow_planner_keeps_its_bound_and_leaves_room() -> None:
    trained, device = started(expandable=False)
    graph = profiled(trained, device, [])
    budget = int(0.75 * max(graph.memory_bytes))
    quick = planner("greedy-swap")(graph, sim_hardware(), budget)
    slow = planner("capuchin-swap")(graph, sim_hardware(), budget)
    for answer in (quick, slow):
        assert answer.plan is not None and answer.reason is not None and "left to segments" in answer.reason
        assert held_by_steps(graph, answer.plan, SegmentSettings(limit_bytes=budget)).keeps(budget)
    use_sim()


@pytest.mark.soak
@pytest.mark.parametrize("expandable", [False, True])
def test_a_program_of_hundreds_of_mebibytes_keeps_its_budget(expandable: bool) -> None:
    row = planned("waves", 0.6, expandable, plain(EVERY["waves"], expandable))
    use_sim()
    assert row.kept and row.left_bytes < max(0.05 * row.budget_bytes, 40 * MIB), line(row)
    assert not changed(row, equal=False).kept and not changed(row, late_retries=1).kept


@pytest.mark.soak
@pytest.mark.parametrize("name", [*EVERY, *WIDE])
def test_every_plan_keeps_its_budget_or_is_refused(name: str) -> None:
    rows = list(trials([name]))
    use_sim()
    wrong = [line(row) for row in rows if not row.ends_well]
    kept = [row for row in rows if row.kept]
    assert not wrong, "\n".join(wrong)
    if name in WIDE:
        assert len(kept) >= 5 + (name != "gpt 32 x 1024")
        assert all(row.left_bytes <= 0.07 * row.budget_bytes for row in kept)
