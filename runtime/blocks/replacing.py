"""What is put in the place of something of PyTorch's or the model's for a while, where there is no hook."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import nn


class Alias(torch.autograd.Function):
    """Another tensor on a storage, with the same place in the graph, that does not keep the first one alive."""

    @staticmethod
    def forward(_: Any, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor's storage in a new tensor."""
        return tensor.detach()

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient as it is."""
        return gradient


@contextmanager
def forward_replaced(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Another forward for a module, inside; it says that it takes what the module's own takes, as trainers ask."""
    with suppress(TypeError, ValueError, AttributeError):
        forward.__signature__ = inspect.signature(module.forward)  # type: ignore[attr-defined]
    own = module.__dict__.get("forward")
    module.__dict__["forward"] = forward
    try:
        yield
    finally:
        if own is None:
            del module.__dict__["forward"]
        else:
            module.__dict__["forward"] = own


@contextmanager
def autocast_clearing(then: Callable[[], None]) -> Iterator[None]:
    """Inside, call `then` whenever autocast has dropped its copies of weights."""
    clear = torch.clear_autocast_cache

    def cleared() -> None:
        clear()
        then()

    torch.clear_autocast_cache = cleared
    try:
        yield
    finally:
        torch.clear_autocast_cache = clear
