"""A session under policies in which a tensor leaves more than once in an iteration."""

from dataclasses import replace

import torch
from torch import nn

from runtime.device import memory_stats, reset_peak_memory, use_sim
from runtime.swap import session
from runtime.swap.portfolio import GAPS
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
