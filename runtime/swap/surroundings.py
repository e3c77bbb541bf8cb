"""What a session needs of the process around it while it is active."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

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
    sim = load("runtime._sim")
    sim.set_pressure_handler(core.pressure_handler())  # asked in mode exact
    sim.set_relief_callback(core.relief_callback())  # in mode caching, as CUDA's is
    try:
        yield
    finally:
        sim.set_pressure_handler(None)
        sim.set_relief_callback(None)
