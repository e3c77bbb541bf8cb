"""Derivatives of derivatives: what a backward pass records on the device's thread comes in the CPU's order."""

import torch
from torch import Tensor

from runtime.device import SimDevice


def penalized(device: str) -> list[Tensor]:
    """Three steps of a net whose gradients are penalized; the bits depend on the order in which gradients are added."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(7, 9), torch.nn.Tanh(), torch.nn.Linear(9, 5), torch.nn.Softplus())
    net = net.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    seen: list[Tensor] = []
    for _ in range(3):
        words = torch.randn(11, 7).to(device).requires_grad_()
        outputs = net(words)
        first = torch.autograd.grad(outputs.pow(3).sum(), [words, *net.parameters()], create_graph=True)
        penalty = sum((gradient.norm() - 1).square() for gradient in first)
        assert isinstance(penalty, Tensor)
        (outputs.exp().mean() + penalty).backward()
        seen += [penalty.detach().clone(), *(gradient.detach() for gradient in first)]
        seen += [parameter.grad.clone() for parameter in net.parameters() if parameter.grad is not None]
        optimizer.step()
        optimizer.zero_grad()
    return [each.cpu() for each in seen]


def test_gradient_penalties_are_the_cpus(sim: SimDevice) -> None:
    on_sim, on_cpu = penalized("sim"), penalized("cpu")
    assert len(on_sim) == 3 * 10 and all(each.isfinite().all() for each in on_cpu)
    assert all(torch.equal(mine, cpus) for mine, cpus in zip(on_sim, on_cpu, strict=True))
