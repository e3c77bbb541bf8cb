"""What a session needs of the process around it while it is active."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from runtime.device.memory import index_of
from runtime.device.native import core, load
from runtime.profile.recording import live_tensors
from solvers.ir.errors import InvalidInput


def tensors_on(device: torch.device) -> list[torch.Tensor]:
    """The tensors of the device that Python can reach, gradients and optimizer states included."""
    return [tensor for tensor in live_tensors() if tensor.layout is torch.strided and tensor.device == device]


@contextmanager
def relieved(device: torch.device) -> Iterator[None]:
    """Let the allocator ask the engine where a request does not fit; raises `InvalidInput` where it asks nobody."""
    if device.type != "sim":
        if device.type != "cuda" or not core.listen_to_cuda():
            raise InvalidInput(
                f"the allocator of device {device} asks nobody to free memory before it gives up, so no session can "
                "keep a budget there: use sim, or cuda with a PyTorch that has free-memory callbacks"
            )
        yield
        return
    sim, index = load("runtime._sim"), index_of(device)
    sim.set_pressure_handler(core.pressure_handler(), index)  # asked in mode exact
    sim.set_relief_callback(core.relief_callback(), index)  # in mode caching, as CUDA's is
    try:
        yield
    finally:
        sim.set_pressure_handler(None, index)
        sim.set_relief_callback(None, index)
