"""Tensors by hand: bring them back where PyTorch reads memory without an operator, or send them away."""

from collections.abc import Iterator, Mapping

import torch

from runtime.device.native import core


def ensure_in(*values: object) -> None:
    """Bring back the storages of tensors, also those inside modules, optimizers, mappings, lists and tuples.

    Operators do this by themselves. Call it before what reads memory past them: `torch.save`, `copy.deepcopy`,
    `torch.to_dlpack`, `data_ptr()` (inside a session these do it, too), or a C++ function that is no operator. In a
    session they all stay until the iteration ends. Raises `torch.OutOfMemoryError`.
    """
    tensors = list(tensors_in(values))
    for tensor in tensors:
        core.hold_storage(tensor.untyped_storage()._cdata, False)
    for tensor in tensors:
        core.ensure_in(tensor)


def swap_out(tensor: torch.Tensor) -> None:
    """Move the tensor's storage, with all its views, to host memory, and free its device memory at once.

    It comes back when an operator uses it. Other streams must be done with it, or the current one wait for them. Raises
    `RuntimeError` where it cannot leave or the host has no room.
    """
    core.swap_out(tensor)


def may_leave(tensor: torch.Tensor) -> bool:
    """Whether the tensor's storage could be swapped out: it has bytes, here, and nobody else knows their address."""
    return core.why_it_stays(tensor) is None


def is_swapped_out(tensor: torch.Tensor) -> bool:
    """Whether the tensor's storage is on the host, or on its way out or back."""
    return core.is_out(tensor)


def release_host_memory() -> None:
    """Give idle page-locked memory back to the system; it is kept for the next step otherwise."""
    core.trim_host()


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """All strided tensors on accelerators in a value, and their gradients (see `ensure_in`)."""
    if isinstance(value, torch.Tensor):
        if value.layout is torch.strided and not value.is_cpu:
            yield value
        if value.is_leaf and value.grad is not None:
            yield from tensors_in(value.grad)
    elif isinstance(value, torch.nn.Module):
        yield from tensors_in([*value.parameters(), *value.buffers()])
    elif isinstance(value, torch.optim.Optimizer):
        yield from tensors_in([value.state, value.param_groups])
    elif isinstance(value, Mapping):
        yield from tensors_in(list(value.values()))
    elif isinstance(value, list | tuple | set):
        for element in value:
            yield from tensors_in(element)
