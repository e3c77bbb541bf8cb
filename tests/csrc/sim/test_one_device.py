"""There is one device sim: another is refused by name wherever a program can name a device."""

import io
from collections.abc import Callable

import pytest
import torch

from runtime.device import SimDevice


def _loaded() -> object:
    file = io.BytesIO()
    torch.save(torch.ones(2), file)
    file.seek(0)
    return torch.load(file, map_location="sim:3")


def _sim() -> torch.Tensor:
    return torch.ones(2, device="sim")


def _module() -> object:
    return torch.get_device_module("sim")


REQUESTS: dict[str, Callable[[], object]] = {
    "empty": lambda: torch.empty(2, device="sim:3"),
    "empty_strided": lambda: torch.empty_strided((2,), (1,), device="sim:3"),
    "zeros": lambda: torch.zeros(2, device="sim:3"),
    "full": lambda: torch.full((2,), 1.0, device="sim:3"),
    "arange": lambda: torch.arange(3, device="sim:3"),
    "linspace": lambda: torch.linspace(0, 1, 3, device="sim:3"),
    "eye": lambda: torch.eye(3, device="sim:3"),
    "randn": lambda: torch.randn(3, device="sim:3"),
    "randint": lambda: torch.randint(3, (3,), device="sim:3"),
    "randperm": lambda: torch.randperm(3, device="sim:3"),
    "tensor": lambda: torch.tensor([1.0], device="sim:3"),
    "as_tensor": lambda: torch.as_tensor([1.0], device="sim:3"),
    "asarray": lambda: torch.asarray([1.0], device="sim:3"),
    "scalar_tensor": lambda: torch.scalar_tensor(1.0, device="sim:3"),
    "tril_indices": lambda: torch.tril_indices(3, 3, device="sim:3"),
    "hann_window": lambda: torch.hann_window(3, device="sim:3"),
    "zeros_like": lambda: torch.zeros_like(_sim(), device="sim:3"),
    "empty_like from the host": lambda: torch.empty_like(torch.ones(2), device="sim:3"),
    "new_zeros": lambda: torch.ones(1).new_zeros(2, device="sim:3"),
    "new_full": lambda: _sim().new_full((2,), 1.0, device="sim:3"),
    "zero tensor": lambda: torch._efficientzerotensor(2, device="sim:3"),
    "storage": lambda: torch.UntypedStorage(4, device="sim:3"),  # type: ignore[no-untyped-call]
    "sparse tensor": lambda: torch.empty(2, layout=torch.sparse_coo, device="sim:3"),
    "sparse tensor of parts": lambda: torch.sparse_coo_tensor(
        torch.tensor([[0]]), torch.ones(1), (2,), device="sim:3", check_invariants=True
    ),
    "sparse tensor to": lambda: torch.ones(2).to_sparse().to("sim:3"),
    "to": lambda: torch.ones(2).to("sim:3"),
    "to from sim": lambda: _sim().to("sim:3"),
    "to a type": lambda: torch.ones(2).to("sim:3", torch.float64),
    "sim()": lambda: torch.ones(2).sim(3),  # type: ignore[attr-defined]
    "storage.sim()": lambda: torch.ones(2).untyped_storage().sim(3),  # type: ignore[attr-defined]
    "module to": lambda: torch.nn.Linear(2, 2).to("sim:3"),
    "module factory": lambda: torch.nn.Linear(2, 2, device="sim:3"),
    "module.sim()": lambda: torch.nn.Linear(2, 2).sim(3),  # type: ignore[operator]
    "generator": lambda: torch.Generator("sim:3"),
    "stream": lambda: torch.Stream(device="sim:3"),
    "stream by number": lambda: torch.Stream(3),
    "current stream": lambda: torch.accelerator.current_stream(3),
    "torch.sim.current_stream": lambda: _module().current_stream("sim:3"),  # type: ignore[attr-defined]
    "set_device_index": lambda: torch.accelerator.set_device_index(3),
    "device_index": lambda: torch.accelerator.device_index(3).__enter__(),
    "torch.sim.set_device": lambda: _module().set_device(3),  # type: ignore[attr-defined]
    "torch.sim.device": lambda: _module().device(torch.device("sim:3")),  # type: ignore[attr-defined]
    "synchronize": lambda: torch.accelerator.synchronize(3),
    "torch.sim.synchronize": lambda: _module().synchronize(3),  # type: ignore[attr-defined]
    "memory_allocated": lambda: torch.accelerator.memory_allocated(3),
    "memory_stats": lambda: torch.accelerator.memory_stats("sim:3"),
    "reset_peak_memory_stats": lambda: torch.accelerator.reset_peak_memory_stats(3),
    "get_memory_info": lambda: torch.accelerator.get_memory_info(3),
    "capability": lambda: torch.accelerator.get_device_capability(3),
    "get_rng_state": lambda: _module().get_rng_state("sim:3"),  # type: ignore[attr-defined]
    "set_rng_state": lambda: _module().set_rng_state(torch.get_rng_state(), 3),  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("request_device", REQUESTS.values(), ids=REQUESTS)
def test_another_device_is_refused(sim: SimDevice, request_device: Callable[[], object]) -> None:
    with pytest.raises(RuntimeError, match="there is one device sim, not sim:3: use sim:0"):
        request_device()


def test_another_device_is_refused_as_a_context_and_in_files(sim: SimDevice) -> None:
    with torch.device("sim:3"), pytest.raises(RuntimeError, match="there is one device sim, not sim:3"):
        torch.ones(2)
    with pytest.raises(RuntimeError, match=r"device 3 but torch.sim.device_count\(\) is 1"):
        _loaded()


def test_the_first_device_and_none_are_accepted(sim: SimDevice) -> None:
    torch.accelerator.set_device_index(0)
    with torch.accelerator.device_index(0), torch.device("sim:0"):
        assert torch.ones(2).device == torch.zeros(2, device="sim").device == sim.device
    for named in (None, 0, -1, "sim", "sim:0", torch.device("sim")):
        assert _module().current_stream(named).device == sim.device  # type: ignore[attr-defined]
    assert torch.Stream(device="sim:0").device == torch.Generator("sim:0").device == sim.device
