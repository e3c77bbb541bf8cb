"""The recorders leave the thread as they found it, whatever happens inside."""

import sys
import threading

import pytest
import torch

from runtime.device import SimDevice
from runtime.profile.recording import detailed_recording, light_recording, live_tensors
from solvers.ir.errors import InvalidInput
from tests.csrc.sim.gpt import Trainer

CPU = torch.device("cpu")


def test_light_and_detailed_see_the_same_operators() -> None:
    trainer = Trainer("cpu", optimizer={"foreach": True})
    trainer.step()
    with light_recording() as light:
        trainer.step()
    with detailed_recording(CPU) as recorder:
        trainer.step()
    with light_recording() as again, detailed_recording(CPU) as beside:
        trainer.step()
    assert light.ids == again.ids
    assert list(light.ids) == [record.id for record in recorder.operators()]
    assert list(light.ids) == [record.id for record in beside.operators()]


def test_nothing_is_recorded_after_an_exception() -> None:
    with pytest.raises(ZeroDivisionError), detailed_recording(CPU) as recorder, light_recording():
        torch.ones(2) + 1
        _ = 1 / 0
    recorded = len(recorder.operators())
    assert recorded == 2
    torch.ones(2) + 1
    assert len(recorder.operators()) == recorded
    with detailed_recording(CPU) as fresh, light_recording() as light:
        torch.ones(2)
    assert len(fresh.operators()) == len(light.ids) == 1


def test_an_exception_inside_backward_passes_through() -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, value: torch.Tensor) -> torch.Tensor:
            return value.clone()

        @staticmethod
        def backward(ctx: object, *gradients: torch.Tensor) -> torch.Tensor:
            raise LookupError("no gradient today")

    with pytest.raises(LookupError, match="no gradient today"), detailed_recording(CPU):
        Fails.apply(torch.ones(2, requires_grad=True)).sum().backward()  # type: ignore[no-untyped-call]
    with detailed_recording(CPU) as recorder:  # and the thread is outside of the backward pass again
        torch.ones(2) + 1
    assert [record.range for record in recorder.operators()] == ["outside", "outside"]


def test_a_running_torch_profiler_is_refused_in_one_sentence() -> None:
    with (
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
        pytest.raises(InvalidInput, match=r"a torch\.profiler is running") as raised,
        detailed_recording(CPU),
    ):
        pass
    assert "\n" not in str(raised.value)
    with detailed_recording(CPU) as recorder:
        torch.ones(1)
    assert len(recorder.operators()) == 1


def test_two_recordings_of_a_kind_are_refused() -> None:
    with light_recording(), pytest.raises(InvalidInput, match="already running"), light_recording():
        pass
    with detailed_recording(CPU), pytest.raises(InvalidInput, match="already running"), detailed_recording(CPU):
        pass


def test_a_full_light_recording_says_how_many_it_would_need() -> None:
    value = torch.ones(1)
    with pytest.raises(InvalidInput, match="5 operators ran, but the light recording holds 3"), light_recording(3):
        for _ in range(5):
            value.add_(1)


def test_another_thread_of_the_program_is_not_recorded() -> None:
    with detailed_recording(CPU) as recorder, light_recording() as light:
        stranger = threading.Thread(target=lambda: torch.ones(3) * 2)
        stranger.start()
        stranger.join()
        torch.ones(3)
    assert len(recorder.operators()) == len(light.ids) == 1


def test_backward_of_an_accelerator_runs_on_its_own_thread_and_is_recorded(sim: SimDevice) -> None:
    weight = torch.ones(4, device="sim", requires_grad=True)
    with light_recording() as light, detailed_recording(sim.device) as recorder:
        (weight * 2).sum().backward()  # type: ignore[no-untyped-call]
    threads = {record.range: record.thread for record in recorder.operators()}
    assert threads["outside"] != threads["backward"]
    assert list(light.ids) == [record.id for record in recorder.operators()]


def test_a_block_reused_for_a_new_tensor_is_another_storage() -> None:
    with detailed_recording(CPU) as recorder:
        for _ in range(5):
            torch.ones(1000)  # freed at once: the allocator may well give the same block again
    assert [record.outputs for record in recorder.operators()] == [[0], [1], [2], [3], [4]]
    assert [storage.born for storage in recorder.storages()] == [0, 1, 2, 3, 4]


def test_a_storage_has_the_type_that_it_was_first_seen_with() -> None:
    with detailed_recording(CPU) as recorder:
        torch.ones(4, dtype=torch.bfloat16).view(torch.int16).add_(1)
        torch.arange(3)
    assert [storage.dtype for storage in recorder.storages()] == [torch.bfloat16, torch.int64]


def test_recording_neither_keeps_tensors_alive_nor_their_memory() -> None:
    with detailed_recording(CPU) as recorder:
        first = torch.ones(1000)
        count = sys.getrefcount(first)
        first.add_(1)
        assert sys.getrefcount(first) == count
        del first
        torch.ones(1)
    last = recorder.operators()[-1]
    assert last.live_start_bytes == recorder.operators()[0].live_start_bytes


def test_memory_counts_what_was_there_before_until_it_is_freed() -> None:
    before = torch.ones(250_000)
    assert any(tensor is before for tensor in live_tensors())
    with detailed_recording(CPU) as recorder:
        torch.ones(1)
        before.untyped_storage().resize_(0)
        torch.ones(1)
    first, second = recorder.operators()
    assert first.live_start_bytes - second.live_start_bytes == 1_000_000


def test_memory_between_operators_belongs_to_the_next_one() -> None:
    with detailed_recording(CPU, ()) as recorder:
        torch.ones(25)
        torch.empty(2500)  # allocated and freed, and no operator of its own
        kept = torch.empty(250)
        kept.fill_(1)
        torch.empty(5000)
    ones, fill = recorder.operators()
    assert (ones.peak_bytes, ones.live_end_bytes) == (100, 100)
    assert (fill.peak_bytes, fill.live_start_bytes) == (21_000, 1000)
    assert recorder.storages()[1].born == 1
