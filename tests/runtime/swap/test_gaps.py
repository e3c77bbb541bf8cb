"""A session under policies in which a tensor leaves more than once in an iteration."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from runtime.device import memory_stats, reset_peak_memory, use_sim
from runtime.swap import session
from runtime.swap.portfolio import ALL_GAPS, GAPS, portfolio
from runtime.swap.report import IterationSummary, SessionCounts
from tests.runtime.swap.models.program import Program, record

WIDTH, ROWS, STEPS, LATE = 64, 512, 20, 6
BLOCK_BYTES = 4 * ROWS * WIDTH


def directed(device: torch.device) -> Program:
    """A direction as large as three activations is read, and put aside for a pass, three times in each step."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(4))).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    direction, data = torch.randn(3 * ROWS, WIDTH).to(device), torch.randn(ROWS, WIDTH).to(device)

    def step() -> torch.Tensor:
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            direction.mul_(0.5)
            loss = model(data).square().mean()
            loss.backward()
            direction.add_(loss.detach())
            losses.append(loss.detach() + direction.mean())
        optimizer.step()
        return torch.stack(losses)

    return Program(model, optimizer, step)


def test_one_tensor_leaves_in_each_pass() -> None:
    """No activation has to, and nothing is left to passive swaps; no bit changes, and nothing races."""
    device = use_sim(races="raise").device
    plain = directed(device)
    reset_peak_memory(device)
    losses = [plain.step().cpu() for _ in range(STEPS)]
    known, peak = record(plain, losses), memory_stats(device).peak_bytes
    del plain, losses
    running, seen = directed(use_sim(races="raise").device), list[IterationSummary]()
    with session(
        peak - 2 * BLOCK_BYTES, device=device, solver=[replace(GAPS, tried="always")], watch=seen.append
    ) as swapping:
        losses = [running.step().cpu() for _ in range(STEPS)]
        report = swapping.report()
    assert not record(running, losses).differences(known) and report.within_budget
    late = sum((ran.counts for ran in seen[-LATE:]), SessionCounts())
    assert late.swapped_out == late.in_time == 3 * LATE and late.passive == late.fallbacks == 0
    assert late.out_bytes == 3 * LATE * 3 * BLOCK_BYTES


class FixedPoint(torch.autograd.Function):
    """Solves z = tanh(layer(z) + x) without a graph, and its gradient, too, by further passes back through one."""

    @staticmethod
    def forward(ctx: Any, layer: nn.Module, x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        z = torch.zeros_like(x)
        for _ in range(4):
            z = torch.tanh(layer(z) + x)
        ctx.layer, ctx.weights = layer, weights
        ctx.save_for_backward(z, x)
        return z

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        z, x = (saved.detach().requires_grad_() for saved in ctx.saved_tensors)
        with torch.enable_grad():
            y = torch.tanh(ctx.layer(z) + x)
        total = grad
        for _ in range(3):
            total = grad + torch.autograd.grad(y, z, total, retain_graph=True)[0]
        return None, *torch.autograd.grad(y, (x, *ctx.weights), total)


def equilibrium(device: torch.device) -> Program:
    """All that is large waits from pass to pass within the backward pass; only two tensors wait for it."""
    torch.manual_seed(0)
    model = nn.ModuleList([nn.Linear(WIDTH, WIDTH), nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH))])
    first, layer = model.to(device)
    optimizer, data = torch.optim.SGD(model.parameters(), lr=1e-2), torch.randn(8 * ROWS, WIDTH).to(device)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = FixedPoint.apply(layer, first(data), *layer.parameters()).square().mean()  # type: ignore[no-untyped-call]
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()

    return Program(model, optimizer, step)


def test_what_waits_within_the_backward_pass_leaves_where_nothing_else_suffices() -> None:
    """No policy between forward and backward pass keeps three quarters of the peak, which left all to passive swaps."""
    device = use_sim(races="raise").device
    plain = equilibrium(device)
    losses = [plain.step().cpu() for _ in range(STEPS)]
    known, peak = record(plain, losses), memory_stats(device).peak_bytes
    del plain, losses
    took: list[float] = []
    for choices in (portfolio("greedy-swap", 5)[:5], "greedy-swap"):
        running, seen = equilibrium(use_sim(races="raise").device), list[IterationSummary]()
        with session(3 * peak // 4, device=device, solver=choices, watch=seen.append) as swapping:
            losses = [running.step().cpu() for _ in range(STEPS)]
            report = swapping.report()
        assert not record(running, losses).differences(known) and report.within_budget
        took.append(sum(ran.duration_us or 0.0 for ran in seen[-LATE:]))
        del running
    assert took[1] < 0.8 * took[0]
    assert any(result.kept and result.choice in (GAPS, ALL_GAPS) for result in report.policies)
