"""Derivatives in forward mode, whose zeros have no memory, on sim as on the CPU."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from runtime.device import SimDevice

WEIGHT = torch.arange(12.0).view(4, 3)
FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "linear": lambda x, w: torch.nn.functional.linear(x, w, w[:, 0]),
    "product": lambda x, w: x * w[:2],
    "matrix product": lambda x, w: x @ w.T,
    "sum": lambda x, w: x + w[0],
    "views": lambda x, w: (x.t() + w.view(3, 4)[:, :2]).expand(2, 3, 2)[1],
    "net": lambda x, w: torch.nn.functional.layer_norm(torch.tanh(x @ w.T), (4,)).logsumexp(-1),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_derivatives_are_the_cpus(sim: SimDevice, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    def run(device: str) -> tuple[Tensor, Tensor]:
        x, w = torch.linspace(-1, 1, 6).view(2, 3).to(device), WEIGHT.to(device)
        pair = torch.func.jvp(lambda x: function(x, w), (x,), (torch.ones_like(x),))
        return pair[0].cpu(), pair[1].cpu()

    assert all(torch.equal(mine, cpus) for mine, cpus in zip(run("sim"), run("cpu"), strict=True))


def test_zeros_take_no_memory_until_somebody_computes_with_them(sim: SimDevice) -> None:
    before = torch.accelerator.memory_allocated()
    zeros = torch._efficientzerotensor(1024, device="sim")
    assert zeros.device == sim.device and zeros._is_zerotensor()
    assert torch.accelerator.memory_allocated() == before
    assert (zeros + torch.ones(1024, device="sim")).sum().item() == 1024
    assert zeros.view(32, 32).t()._is_zerotensor() and zeros.cpu().eq(0).all()
    with pytest.raises(RuntimeError, match="ZeroTensors are immutable"):
        zeros.add_(1)
