"""Code of the program's own between PyTorch's operators: autograd functions, registered operators, raw addresses."""

import ctypes
from typing import Any

import numpy
import torch
from torch import nn
from torch.nn import functional

from tests.runtime.swap.models.networks import WIDTH, Layers, tokens, trained_on
from tests.runtime.swap.models.program import Build


class Squash(torch.autograd.Function):
    """x·sigmoid(x) with a backward pass of its own, which keeps an input, a result and a tensor of neither kind."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        gate = torch.sigmoid(x)
        result = x * gate
        ctx.save_for_backward(x, result)
        ctx.gate = gate
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        x, result = ctx.saved_tensors
        slope: torch.Tensor = ctx.gate * (1 + x) - result * ctx.gate
        return gradients[0] * slope


@torch.library.custom_op("bayplan_test::damped", mutates_args=())
def damped(x: torch.Tensor, rate: float) -> torch.Tensor:
    """x·exp(−rate·x²)."""
    return x * torch.exp(x.square() * -rate)


@torch.library.custom_op("bayplan_test::add_twice_", mutates_args=("into",))
def add_twice(into: torch.Tensor, x: torch.Tensor) -> None:
    """Writes into one of its arguments."""
    into.add_(x, alpha=2.0)


def _keep_damped(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.rate = inputs[1]


def _damped_backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
    (x,) = ctx.saved_tensors
    return gradient * torch.exp(x.square() * -ctx.rate) * (1 - 2 * ctx.rate * x.square()), None


damped.register_autograd(_damped_backward, setup_context=_keep_damped)


def floats_at(tensor: torch.Tensor) -> "numpy.ndarray[Any, numpy.dtype[numpy.float32]]":
    """The tensor's memory as a kernel that got its bare address sees it; on sim that is memory of this process."""
    held = (ctypes.c_float * tensor.numel()).from_address(tensor.data_ptr())
    return numpy.ctypeslib.as_array(held)


class ByAddress(torch.autograd.Function):
    """Twice the input, and twice the gradient, computed through `data_ptr()` by code that PyTorch knows nothing of."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        result = torch.empty_like(x)
        _call(x, result)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        kept, result = torch.empty_like(x), torch.empty_like(x)
        _call(x, kept)
        _call(gradients[0].contiguous(), result)
        return result + 0.0 * kept


def _call(x: torch.Tensor, result: torch.Tensor) -> None:
    addresses = floats_at(x), floats_at(result)  # all addresses first, as a launch does
    if x.device.type != "cpu":
        torch.accelerator.synchronize()  # this kernel runs on the host
    numpy.multiply(addresses[0], 2.0, out=addresses[1])


class Custom(Layers):
    """Layers with one of the functions above between the blocks."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.gate = nn.Linear(WIDTH, WIDTH)

    def between(self, hidden: torch.Tensor) -> torch.Tensor:
        """What the program's own code makes of the hidden state."""
        if self.kind == "function":
            return Squash.apply(hidden)  # type: ignore[no-any-return, no-untyped-call]
        if self.kind == "address":
            return ByAddress.apply(hidden)  # type: ignore[no-any-return, no-untyped-call]
        inner: torch.Tensor = damped(hidden, 0.05)
        with torch.no_grad():
            total = torch.zeros_like(inner)
            add_twice(total, inner.detach())
        return inner + 0.1 * total

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits of each token."""
        hidden = self.table(tokens)
        for block in self.blocks:
            hidden = hidden + self.between(self.gate(functional.layer_norm(block(hidden), (WIDTH,))))
        logits: torch.Tensor = self.head(hidden)
        return logits


KERNELS: dict[str, Build] = {
    "autograd-function": trained_on(lambda: Custom("function"), tokens),
    "registered-operator": trained_on(lambda: Custom("operator"), tokens),
    "kernel-by-address": trained_on(lambda: Custom("address"), tokens),
}
