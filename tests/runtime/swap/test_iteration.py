"""One recorded iteration as a graph from limited information, and its memory with and without swaps."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runtime.device import use_sim
from runtime.profile.recording import detailed_recording
from runtime.swap import SwapExecutor, swap_out
from runtime.swap.iteration import limited_graph, mean_times_us, memory_curve, sightings_by_use
from runtime.swap.session import session
from runtime.swap.stages import StageSettings
from solvers.ir.errors import InvalidInput
from solvers.ir.graph import OpGraph
from tests.runtime.execute.training import Trainee, graph_of, schedule_of, sensible, small, warm


@given(st.integers(1, 5000), st.floats(1, 1e9))
def test_every_group_has_the_time_of_equation_1(operators: int, duration_us: float) -> None:
    times = mean_times_us(operators, duration_us)
    assert len(times) == operators
    assert min(times) >= 1
    if duration_us < operators:  # no operator takes less than 1 us
        assert set(times) == {1}
        return
    assert sum(times) == pytest.approx(duration_us, abs=0.51)
    mean = duration_us / operators
    for first, count in ((0, operators // 2), (operators // 3, operators // 3), (operators - 1, 1)):
        assert sum(times[first : first + count]) == pytest.approx(mean * count, abs=1.01)


def recorded_graph(trainee: Trainee, device: torch.device, step: Callable[[], object] | None = None) -> OpGraph:
    """A recorded step of a known duration."""
    with detailed_recording(device, timed=False) as recorder:
        (step or trainee.step)()
    return limited_graph(recorder, 8900.0)


def test_a_limited_graph_is_the_profile_without_times_and_arithmetic(device: torch.device) -> None:
    full = graph_of(small, device)
    trainee = warm(small, device)
    with detailed_recording(device, timed=False) as recorder:
        trainee.step()
    graph = limited_graph(recorder, 8900.0, name="third", model=trainee.model, optimizer=trainee.optimizer)
    assert (graph.name, graph.tensors, graph.memory_bytes) == ("third", full.tensors, full.memory_bytes)
    assert [(op.name, op.phase, op.inputs, op.outputs) for op in graph.ops] == [
        (op.name, op.phase, op.inputs, op.outputs) for op in full.ops
    ]
    assert sum(op.time_us for op in graph.ops) == 8900
    assert {op.time_us for op in graph.ops} == {8900 // len(graph.ops)}
    assert all(op.flops is None and op.bytes is None for op in graph.ops)


def test_without_model_and_optimizer_kinds_come_from_what_the_step_does(device: torch.device) -> None:
    trainee = warm(small, device)
    graph = recorded_graph(trainee, device)
    kinds = [tensor.kind for tensor in graph.tensors]
    parameters = len(list(trainee.model.parameters()))
    assert kinds.count("parameter") == kinds.count("gradient") == parameters
    assert any(tensor.kind == "activation" and tensor.saved for tensor in graph.tensors)


def test_the_graph_of_a_swapped_iteration_is_that_of_a_plain_one(device: torch.device) -> None:
    """Figure 3: policies are made from the memory that a step without swaps would need."""
    profile = graph_of(small, device)
    trainee = warm(small, device)
    executor = SwapExecutor(schedule_of(profile, sensible(profile)), profile, device)
    swapped = recorded_graph(trainee, device, lambda: executor.run(trainee.step))
    assert swapped == recorded_graph(trainee, device)


def test_the_reconstructed_curve_is_exactly_the_one_without_swaps(device: torch.device) -> None:
    profile = graph_of(small, device)
    trainee = warm(small, device)
    executor = SwapExecutor(schedule_of(profile, sensible(profile)), profile, device)
    with detailed_recording(device, timed=False) as recorder:
        trainee.step()
    plain = memory_curve(recorder)
    with detailed_recording(device, timed=False) as recorder:
        outcome = executor.run(trainee.step)
    swapped = memory_curve(recorder)
    assert outcome.counts.as_planned
    assert plain.actual_bytes == plain.reconstructed_bytes == swapped.reconstructed_bytes == profile.memory_bytes
    assert set(plain.displaced_bytes) == {0}
    assert max(swapped.actual_bytes) == outcome.report.peak_bytes < max(plain.actual_bytes)
    assert max(swapped.displaced_bytes) > 100_000


def wide(device: torch.device) -> Trainee:
    """A step most of whose memory is activations."""
    return small(device, width=64, depth=4, tokens=512)


def test_a_session_within_its_budget_shows_what_the_step_would_need(device: torch.device) -> None:
    """Figure 3 with the swaps of Algorithm 3 in the first iterations and with those of a policy in the last."""
    trainee = warm(wide, device)
    with detailed_recording(device, timed=False) as recorder:
        trainee.step()
    plain = memory_curve(recorder)
    budget_bytes = int(0.75 * max(plain.actual_bytes))
    with session(budget_bytes, device=device, stages=StageSettings(warm_up_iterations=1, policies=1)) as running:
        for stage, before in (("WarmUp", 0), ("Stable", 8)):
            for _ in range(before):
                trainee.step()
            assert running.report().stage == stage
            with detailed_recording(device, timed=False) as recorder:
                trainee.step()
            curve = memory_curve(recorder)
            assert curve.reconstructed_bytes == plain.reconstructed_bytes
            assert max(curve.actual_bytes) <= budget_bytes
            assert max(curve.displaced_bytes) >= max(plain.actual_bytes) - budget_bytes
        counts = running.report().counts
    assert counts.passive > 0
    assert counts.in_time > 0


def test_swaps_by_hand_at_odd_sizes_are_reconstructed_too(device: torch.device) -> None:
    """Sizes that no allocator hands out as they are."""
    values = [torch.randn(size, device=device) for size in (1, 77, 129, 1000, 33_333)]

    def work(leave: bool) -> None:
        saved = [(value * 2).square() for value in values]
        if leave:
            for value in saved[::2]:
                swap_out(value)
        torch.ones(5, device=device)
        if leave:
            swap_out(saved[1])
        del saved[2]  # dies while it is out
        total = torch.zeros((), device=device)
        for value in saved:
            total += value.sum()
            if leave:
                swap_out(value)

    curves = []
    for leave in (False, True):
        with detailed_recording(device, timed=False) as recorder:
            work(leave)
        curves.append(memory_curve(recorder))
    assert curves[0].reconstructed_bytes == curves[1].reconstructed_bytes
    assert max(curves[1].displaced_bytes) > 4 * 33_333
    assert max(curves[1].actual_bytes) <= max(curves[0].actual_bytes)


def test_a_program_that_only_fits_by_swapping_shows_what_it_would_need() -> None:
    sim = use_sim(capacity_bytes=10 << 20)
    older = torch.accelerator.memory_allocated()  # what other tests left
    blocks = []
    with detailed_recording(sim.device, timed=False) as recorder:
        for _ in range(6):
            blocks.append(torch.ones(1 << 20, device="sim"))  # 4 MiB each, two and a half fit
            swap_out(blocks[-1])
    curve = memory_curve(recorder)
    assert max(curve.actual_bytes) <= 10 << 20
    assert curve.reconstructed_bytes == tuple(older + (number + 1) * (4 << 20) for number in range(6))
    del blocks


class Seen(NamedTuple):
    """What the join needs of a sighting."""

    op: int
    storage: int


def test_sightings_are_found_by_tensor_and_operator(device: torch.device) -> None:
    value, stranger = torch.ones(8, device=device), torch.ones(8, device=device)
    with detailed_recording(device, timed=False) as recorder:
        product = value * 2
        product.add_(value)
    graph = limited_graph(recorder, 2.0)
    address, other, foreign = (tensor.untyped_storage()._cdata for tensor in (value, product, stranger))
    sightings = [Seen(0, address), Seen(0, other), Seen(1, other), Seen(1, foreign)]
    found = sightings_by_use(recorder, sightings)
    (number,), (result,) = graph.ops[0].inputs, graph.ops[0].outputs
    assert found == {(number, 0): sightings[0], (result, 0): sightings[1], (result, 1): sightings[2]}


def test_what_is_no_iteration_is_refused_in_a_sentence(device: torch.device) -> None:
    with detailed_recording(device, timed=False) as empty:
        pass
    with pytest.raises(InvalidInput, match="no operator ran in the recorded iteration"):
        limited_graph(empty, 1.0)
    with detailed_recording(device, timed=False) as recorder:
        torch.ones(1, device=device)
    for duration in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InvalidInput, match="is no duration"):
            limited_graph(recorder, duration)
