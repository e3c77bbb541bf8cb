"""Tapes inside a session: storages that left and came back are what they were."""

import pytest
import torch
from torch import Tensor, nn

from runtime.device import use_sim
from runtime.recompute.tape import EVERYTHING, NOTHING, StorePolicy, record
from runtime.swap import session
from tests.runtime.recompute.programs import Block
from tests.runtime.recompute.regions import backward, same

pytestmark = pytest.mark.usefixtures("plain_sim")


def steps(policy: StorePolicy | None, budget: str | None) -> tuple[list[Tensor], int]:
    """Five steps of six blocks; the highest that the device's memory was."""
    from contextlib import nullcontext

    device = use_sim(races="raise", capacity_bytes=128 << 20).device
    torch.manual_seed(0)
    blocks = nn.ModuleList(Block(64) for _ in range(6)).to(device)
    optimizer = torch.optim.SGD(blocks.parameters(), lr=0.1)
    losses = []
    with nullcontext() if budget is None else session(budget, device=device):
        for number in range(5):
            x = torch.randn(16, 32, 64, generator=torch.Generator().manual_seed(number)).to(device)
            for block in blocks:
                with nullcontext() if policy is None else record(device, policy):
                    x = block(x)
            loss = x.square().mean()
            losses.append(loss.detach().cpu())
            backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    peak = int(torch.accelerator.memory_stats("sim")["allocated_bytes.all.peak"])
    return [*losses, *(p.detach().cpu() for p in blocks.parameters())], peak


def test_a_session_around_tapes_keeps_its_budget_and_every_bit() -> None:
    plain, peak = steps(None, None)
    for policy in (EVERYTHING, NOTHING, StorePolicy([1] * 100)):
        found, _ = steps(policy, None)
        assert [same(*pair) for pair in zip(plain, found, strict=True)] == [True] * len(plain)
        budget = int(peak * (0.6 if policy is not NOTHING else 0.45))
        found, within = steps(policy, f"{budget}B")
        assert [same(*pair) for pair in zip(plain, found, strict=True)] == [True] * len(plain)
        assert within <= budget
