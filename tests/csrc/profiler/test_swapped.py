"""What the detailed recorder says of a step whose storages leave and come back: the same as if they had stayed."""

import gc
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.nn import functional

from runtime.device.native import core
from runtime.profile.recording import detailed_recording
from runtime.swap import SwapExecutor, ensure_in, is_swapped_out, release_host_memory, swap_out
from tests.accelerators import prepared
from tests.runtime.execute.training import graph_of, schedule_of, sensible, small, warm


@pytest.fixture
def device() -> Iterator[torch.device]:
    """The simulated accelerator, with nothing out before or after."""
    gc.collect()
    yield prepared("sim")
    gc.collect()
    assert core.swapped_out_storages() == 0
    release_host_memory()


def recorded(device: torch.device, work: Callable[[], object]) -> core.DetailedRecorder:
    """The recording of some work, without times."""
    with detailed_recording(device, timed=False) as recorder:
        work()
    return recorder


def story(recorder: core.DetailedRecorder) -> list[object]:
    """All that a graph is made of, but for times."""
    operators = [
        (
            (record.name, record.range, record.inputs, record.outputs, record.written),
            (record.live_start_bytes, record.peak_bytes, record.live_end_bytes),
        )
        for record in recorder.operators()
    ]
    storages = [
        (storage.bytes, storage.born, storage.dtype, storage.gradient, storage.leaf) for storage in recorder.storages()
    ]
    return [operators, storages]


def test_a_swapped_step_is_recorded_as_the_step_without_swaps(device: torch.device) -> None:
    graph = graph_of(small, device)
    trainee = warm(small, device)
    plain = recorded(device, trainee.step)
    executor = SwapExecutor(schedule_of(graph, sensible(graph)), graph, device)
    swapped = recorded(device, lambda: executor.run(trainee.step))
    assert story(swapped) == story(plain)
    assert max(record.displaced_bytes for record in swapped.operators()) > 100_000
    peaks = [max(record.allocated_peak_bytes for record in run.operators()) for run in (plain, swapped)]
    assert peaks[0] == max(record.peak_bytes for record in plain.operators())
    assert peaks[1] < 0.9 * peaks[0]


def test_what_is_on_the_device_and_what_is_displaced_add_up(device: torch.device) -> None:
    first, second = torch.ones(1000, device=device), torch.ones(5000, device=device)
    held = torch.accelerator.memory_allocated()

    def work() -> None:
        second.add_(1)
        swap_out(first)
        second.add_(1)
        first.add_(1)

    before, away, back = recorded(device, work).operators()
    assert [record.displaced_bytes for record in (before, away, back)] == [0, 4096, 0]
    assert [record.live_end_bytes for record in (before, away, back)] == [held, held, held]
    scalar = 512  # add_(1) makes a tensor of the number
    assert [record.peak_bytes - scalar for record in (before, away, back)] == [held, held, held]
    assert [record.allocated_peak_bytes - scalar for record in (before, away, back)] == [held, held - 4096, held]


def test_what_dies_while_it_is_out_is_displaced_no_more(device: torch.device) -> None:
    keep = [torch.ones(1000, device=device)]
    other = torch.ones(8, device=device)
    held = torch.accelerator.memory_allocated()

    def work() -> None:
        swap_out(keep[0])
        other.add_(1)
        keep.clear()
        other.add_(1)

    away, dead = recorded(device, work).operators()
    assert (away.live_end_bytes, away.displaced_bytes) == (held, 4096)
    assert (dead.live_end_bytes, dead.displaced_bytes) == (held - 4096, 0)


def test_what_was_out_before_the_recording_is_not_born_in_it(device: torch.device) -> None:
    value = torch.ones(1000, device=device)
    swap_out(value)
    recorder = recorded(device, lambda: value.add_(1))
    assert [storage.born for storage in recorder.storages()] == [None]
    assert recorder.operators()[0].inputs == [0]


def test_what_leaves_unseen_and_comes_back_keeps_its_birth(device: torch.device) -> None:
    """Layer norm's mean is first an argument in the backward pass; by then it lies on another block."""
    weight = torch.ones(64, device=device, requires_grad=True)
    data = torch.ones(512, 64, device=device)

    def work(leave: bool) -> None:
        out = functional.layer_norm(data, (64,), weight)
        node = out.grad_fn
        assert node is not None
        if leave:
            swap_out(node._saved_result1)  # type: ignore[attr-defined]
        del node
        out.sum().backward()  # type: ignore[no-untyped-call]

    plain = recorded(device, lambda: work(False))
    weight.grad = None
    swapped = recorded(device, lambda: work(True))
    assert story(swapped) == story(plain)
    assert any(storage.born == 0 and storage.bytes == 4 * 512 for storage in swapped.storages())


def test_what_leaves_before_any_operator_touches_it_is_born_in_the_first_that_does(device: torch.device) -> None:
    other = torch.ones(8, device=device)

    def work() -> None:
        fresh = torch.empty(1000, device=device)
        swap_out(fresh)
        other.add_(1)
        fresh.fill_(1)

    recorder = recorded(device, work)
    assert [storage.born for storage in recorder.storages()] == [None, 1]


actions = st.lists(
    st.tuples(st.sampled_from(["make", "empty", "use", "view", "leave", "return", "free"]), st.integers(0, 40_000)),
    max_size=40,
)


def play(program: list[tuple[str, int]], device: torch.device, *, moving: bool) -> None:
    """Make, use and free tensors in that order; send them away and back only if `moving`."""
    alive = [torch.ones(100, device=device)]
    for action, number in program:
        chosen = alive[number % len(alive)]
        if action == "make":
            alive.append(torch.ones(number + 1, device=device))
        elif action == "empty":
            alive.append(torch.empty(number + 1, device=device))
        elif action == "use":
            torch.maximum(chosen, alive[number % 7 % len(alive)][:1])
            chosen.mul_(2)
        elif action == "view":
            alive.append(chosen[len(chosen) // 2 :])
        elif action == "free" and len(alive) > 1:
            del alive[number % len(alive)], chosen
        elif moving and action == "leave" and not is_swapped_out(chosen):
            swap_out(chosen)
        elif moving and action == "return":
            ensure_in(chosen)


@settings(max_examples=60, deadline=None)
@given(actions)
@example([("make", 128), ("leave", 0), ("return", 0), ("free", 1), ("make", 0)])
def test_any_program_reads_the_same_wherever_its_tensors_are(program: list[tuple[str, int]]) -> None:
    device = prepared("sim")
    plain = recorded(device, lambda: play(program, device, moving=False))
    swapped = recorded(device, lambda: play(program, device, moving=True))
    assert story(swapped) == story(plain)
    assert core.swapped_out_storages() == 0
    for record in swapped.operators():
        assert record.allocated_peak_bytes <= record.peak_bytes
        assert 0 <= record.displaced_bytes <= record.live_end_bytes


def test_without_times_nothing_is_marked_and_nothing_counted(device: torch.device) -> None:
    matrix = torch.ones(64, 64, device=device)
    torch.accelerator.synchronize()
    with detailed_recording(device) as timed:
        for _ in range(3):
            torch.mm(matrix, matrix)
    torch.accelerator.synchronize()
    with detailed_recording(device, timed=False) as untimed:
        for _ in range(3):
            torch.mm(matrix, matrix)
    assert len(timed.elapsed_ns()) == 4
    assert untimed.elapsed_ns() == [timed.elapsed_ns()[-1]]
    assert [record.flops for record in timed.operators()] == [2 * 64**3] * 3
    assert [record.flops for record in untimed.operators()] == [0] * 3


def test_it_tells_what_lives_on(device: torch.device) -> None:
    kept = list[torch.Tensor]()

    def work() -> None:
        kept.append(torch.ones(64, device=device) * 2)
        torch.ones(64, device=device)

    recorder = recorded(device, work)
    assert recorder.living() == [recorder.storage_number(kept[0].untyped_storage()._cdata)]
    kept.clear()
    assert recorder.living() == []
