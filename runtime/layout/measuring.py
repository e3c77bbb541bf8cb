"""A model's step, measured with every state off the device: also of a model that is larger than it."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from runtime.device import memory_limit_bytes
from runtime.profile.memory import MemoryProfile, profile_memory
from runtime.storage.access import ensure_in
from solvers.ir.errors import InfeasibleBudget


def measure(
    model: nn.Module,
    step: Callable[[], object],
    device: torch.device,
    dtype: torch.dtype | None = None,
    *,
    ran: bool = False,
) -> MemoryProfile:
    """Profile a step that trains nothing, with the states off the device, computed in a type.

    `ran` says that steps have run before: what is done once is done. Random numbers, gradients and buffers stay as
    before. Raises `InfeasibleBudget` where the device does not hold even such a step; the model is where it was then.
    """
    place = next(model.parameters()).device
    try:
        return _measured(model, step, device, dtype, ran)
    except RuntimeError as error:  # also of a storage that could not be brought back
        if "out of memory" not in str(error):
            raise
        reason = str(error).partition("\n")[0]
    gc.collect()  # what the step held is gone before the model is moved back
    model.to(place)
    raise InfeasibleBudget(
        f"{device} with its {memory_limit_bytes(device)} bytes does not hold the step that is to be measured, though "
        f"every state is off the device ({reason}): lower the batch size, or take a larger device",
        None,
    )


def _measured(
    model: nn.Module, step: Callable[[], object], device: torch.device, dtype: torch.dtype | None, ran: bool
) -> MemoryProfile:
    host, module = torch.get_rng_state(), torch.get_device_module(device)
    random = module.get_rng_state(device)
    held = [(one, name, buffer) for one in model.modules() for name, buffer in one._buffers.items()]
    kept = {id(one): (one, one.detach().clone()) for *_, one in held if one is not None and not one.is_inference()}
    try:
        with _aside(model, dtype):
            name, warmup = type(model).__name__, int(not ran)
            for _ in range(1 if ran or device.type in ("sim", "cpu") else 2):  # the second time kernels are loaded
                profile = profile_memory(model, step, device, name=name, on_demand=True, warmup=warmup)
            return profile
    finally:
        torch.set_rng_state(host)
        module.set_rng_state(random, device)
        for holder, key, buffer in held:  # the very objects: others may share their memory
            holder._buffers[key] = buffer
        ensure_in([one for one, _ in kept.values()])
        for one, before in kept.values():
            one.data.copy_(before)


@contextmanager
def _aside(model: nn.Module, dtype: torch.dtype | None) -> Iterator[None]:
    """Gradients are away inside, and parameters of the type that is computed in."""
    before = [(parameter, parameter.data, parameter.grad) for parameter in model.parameters()]
    for parameter, data, _ in before:
        parameter.grad = None
        if dtype is not None and data.is_floating_point():
            parameter.data = data.to(dtype)
    try:
        yield
    finally:
        for parameter, data, gradient in before:
            if dtype is not None:
                parameter.data = data
            parameter.grad = gradient
