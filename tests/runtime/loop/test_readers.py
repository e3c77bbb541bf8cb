"""What reads memory past the operators gets the tensor back first, inside `watch_readers`, and only there."""

import copy
import io
import pickle
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import torch
import torch.utils.dlpack
from torch import nn

from runtime.device import memory_stats
from runtime.device.native import core
from runtime.loop.readers import watch_readers
from runtime.swap import ensure_in, is_swapped_out, session, swap_out
from tests.runtime.swap.models.kernels import floats_at

COUNT = 4096


def saved(value: Any, **options: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file, **options)
    file.seek(0)
    return torch.load(file, weights_only=True)


def storage_of(x: torch.Tensor) -> Any:
    """The storage, whose methods PyTorch types in parts."""
    return x.untyped_storage()


def filled(x: torch.Tensor) -> torch.Tensor:
    storage_of(x).fill_(0)
    return x + 1


def poked(x: torch.Tensor) -> torch.Tensor:
    x.untyped_storage()[0] = 0
    return x * 2


def resized(x: torch.Tensor) -> torch.Tensor:
    x.untyped_storage().resize_(2 * x.nbytes)
    return x * 2


def overwritten(x: torch.Tensor) -> torch.Tensor:
    x.untyped_storage().copy_(torch.ones(COUNT, device=x.device).untyped_storage())
    return x * 2


READERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "data_ptr": lambda x: floats_at(x).tolist(),
    "storage.data_ptr": lambda x: x.untyped_storage().data_ptr() == x.data_ptr(),
    "typed_storage.data_ptr": lambda x: x._typed_storage()._data_ptr() == x.data_ptr(),  # type: ignore[no-untyped-call]
    "storage.cpu": lambda x: storage_of(x).cpu().tolist(),
    "storage.clone": lambda x: storage_of(x).clone().cpu().tolist(),
    "storage.item": lambda x: [x.untyped_storage()[place] for place in (0, 4, 6, 7)],
    "storage.fill_": filled,
    "storage[...] =": poked,
    "storage.copy_": overwritten,
    "storage.resize_": resized,
    "save": saved,
    "save views of one storage": lambda x: saved([x[:8], x.view(64, 64)]),
    "save the old way": lambda x: saved(x, _use_new_zipfile_serialization=False),
    "save a parameter": lambda x: saved(nn.Parameter(x)),
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "deepcopy": copy.deepcopy,
    "deepcopy a parameter": lambda x: copy.deepcopy(nn.Parameter(x)),
    "deepcopy views of one storage": lambda x: copy.deepcopy([x[:8], x.view(64, 64)]),
    "copy": copy.copy,
    "set_": lambda x: torch.empty(0, device=x.device).set_(x.untyped_storage()),
    "set_ of a typed storage": lambda x: torch.empty(0, device=x.device).set_(x._typed_storage()),  # type: ignore[no-untyped-call]
}
GUARDED = {"deepcopy a parameter"}
"""These read through operators."""


def plain(value: Any) -> Any:
    """Tensors as lists, to be compared."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().tolist()
    return [plain(item) for item in value] if isinstance(value, list) else value


def away(device: torch.device) -> torch.Tensor:
    x = torch.arange(float(COUNT), device=device)
    swap_out(x)
    return x


@pytest.mark.parametrize("name", READERS)
def test_a_reader_sees_what_was_there(name: str, device: torch.device) -> None:
    read = READERS[name]
    expected = plain(read(torch.arange(float(COUNT), device=device)))
    with watch_readers():
        assert plain(read(away(device))) == expected


@pytest.mark.parametrize("name", sorted(set(READERS) - GUARDED))
def test_without_a_session_it_is_told_what_to_call(name: str, device: torch.device) -> None:
    with pytest.raises(RuntimeError, match=r"swapped out to the host.*ensure_in"):
        READERS[name](away(device))


def test_saving_needs_no_address(device: torch.device) -> None:
    """Storages that take turns on the device may get one address: then it tells nobody apart."""
    tensors = [torch.full((COUNT,), float(value), device=device) for value in range(3)]
    tensors.append(torch.arange(COUNT, device=device, dtype=torch.int32))
    held = memory_stats(device).allocated_bytes
    for tensor in tensors:
        swap_out(tensor)
    asked: list[bool] = []
    original: Any = torch.UntypedStorage.cpu

    def cpu(storage: torch.UntypedStorage) -> Any:
        asked.append(all(is_swapped_out(tensor) for tensor in tensors[len(asked) :]))
        return original(storage)

    with pytest.MonkeyPatch.context() as patch, watch_readers():
        patch.setattr(torch.UntypedStorage, "cpu", cpu)
        loaded = saved(tensors)
    assert asked == [True] * 4  # brought back one by one, each when its turn came
    assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(tensors, loaded, strict=True))
    assert memory_stats(device).allocated_bytes <= held + 4 * 4 * COUNT


def test_optimizer_and_model_are_saved_while_they_are_away(device: torch.device) -> None:
    model = nn.Linear(64, 64).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(8, 64, device=device)).sum().backward()
    optimizer.step()
    expected = saved([model.state_dict(), optimizer.state_dict()])
    with watch_readers():
        for tensor in [*model.parameters(), *(state["exp_avg"] for state in optimizer.state.values())]:
            swap_out(tensor.detach())
        found = saved([model.state_dict(), optimizer.state_dict()])
    assert str(found) == str(expected)


def test_dlpack_gets_the_memory_itself(device: torch.device) -> None:
    with watch_readers():
        exports: list[Any] = [torch.utils.dlpack.to_dlpack, torch.to_dlpack, torch.Tensor.__dlpack__]  # type: ignore[attr-defined]
        for export in exports:
            x = away(device)
            assert "dltensor" in repr(export(x))
            assert not is_swapped_out(x)


def test_what_goes_to_other_processes_comes_back_first(device: torch.device) -> None:
    """Shared memory of the device belongs to CUDA; the simulated device has none, and PyTorch says so."""
    x = away(device)
    with watch_readers(), pytest.raises(RuntimeError, match=r"(?i)cuda"):
        storage_of(x)._share_cuda_()
    assert not is_swapped_out(x)


def test_tensors_of_the_cpu_and_without_memory_are_left_alone() -> None:
    with watch_readers():
        assert torch.ones(3).data_ptr() != 0
        assert torch.equal(torch.empty(0).set_(torch.ones(3).untyped_storage()), torch.ones(3))
        assert torch.ones(3).untyped_storage().data_ptr() != 0
        assert torch.empty(3, device="meta").data_ptr() == 0
        assert torch.equal(saved(torch.ones(3)), torch.ones(3))
        with pytest.raises(RuntimeError, match="storage"):
            torch.ones(3).to_sparse().data_ptr()


def test_wrappers_stand_while_anyone_needs_them_and_leave_no_trace() -> None:
    def found() -> list[Any]:
        owners = (torch.Tensor, torch.UntypedStorage, torch.serialization, torch.utils.dlpack)
        return [
            (owner, name, vars(owner).get(name))
            for owner in owners
            for name in ("data_ptr", "copy_", "__getitem__", "_save", "to_dlpack", "__dlpack__", "_write_file")
        ]

    before = found()
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(watch_readers())
        second.enter_context(watch_readers())
        wrapped = found()
        first.close()
        assert found() == wrapped != before
    assert found() == before


def test_a_reader_of_another_thread_is_served_too(device: torch.device) -> None:
    x, got = away(device), []
    with watch_readers():
        thread = threading.Thread(target=lambda: got.append(saved(x)))
        thread.start()
        thread.join()
    assert torch.equal(got[0].cpu(), torch.arange(float(COUNT)))
    assert core.swapped_out_storages() == 0


def test_an_address_is_good_until_the_iteration_ends(device: torch.device) -> None:
    """A kernel may be called with it, however much memory is wanted meanwhile."""
    with session(budget=10 * 4 * COUNT, device=device, boundaries="given") as held:
        x = torch.arange(float(COUNT), device=device)
        address = floats_at(x.mul_(2))
        crowd = [torch.empty(COUNT, device=device).fill_(1) for _ in range(30)]
        torch.accelerator.synchronize()
        assert address.tolist() == torch.arange(0.0, 2 * COUNT, 2).tolist()
        assert sum(is_swapped_out(tensor) for tensor in crowd) >= 20
        held.step()
        crowd += [torch.empty(COUNT, device=device).fill_(1) for _ in range(30)]
        assert is_swapped_out(x)


def test_a_function_that_is_no_operator_is_told_what_to_call_and_then_works(device: torch.device) -> None:
    """C++ code that takes addresses by itself, as this function does, is seen by nobody."""
    read = torch._C._to_dlpack
    with session(budget=10 * 4 * COUNT, device=device, boundaries="given"):
        tensors = [torch.arange(float(COUNT), device=device).mul_(2) for _ in range(30)]
        assert is_swapped_out(tensors[0])
        with pytest.raises(RuntimeError, match=r"swapped out to the host.*ensure_in"):
            read(tensors[0])
        ensure_in(tensors[:5])
        assert not any(is_swapped_out(tensor) for tensor in tensors[:5])  # none gave way to another
        assert all("dltensor" in repr(read(tensor)) for tensor in tensors[:5])


def test_what_another_library_sees_stays_for_its_life(device: torch.device) -> None:
    with session(budget=10 * 4 * COUNT, device=device, boundaries="given") as held:
        x = torch.arange(float(COUNT), device=device).mul_(2)
        capsule = x.__dlpack__()
        for _ in range(3):
            crowd = [torch.empty(COUNT, device=device).fill_(1) for _ in range(20)]
            held.step()
        assert not is_swapped_out(x)
        assert any(is_swapped_out(tensor) for tensor in crowd)
    assert "dltensor" in repr(capsule)
