"""A session on segments that fit its tensors exactly: asked once at each new segment, it makes room in time."""

from contextlib import nullcontext
from dataclasses import dataclass

import pytest
import torch

from runtime.device import MemoryStats, memory_stats, use_sim
from runtime.device.native import why_missing
from runtime.swap import session
from runtime.swap.report import IterationSummary

pytestmark = pytest.mark.skipif(why_missing("runtime._sim") is not None, reason=str(why_missing("runtime._sim")))
SEGMENT = 20 << 20
SMALL = 2 << 20
"""The segment of everything small."""
LAYERS, STEPS = 3, 3


@dataclass(frozen=True)
class Ran:
    """Losses, memory, and how many storages were swapped out for requests that did not fit."""

    losses: list[torch.Tensor]
    stats: MemoryStats
    passive: int


def train(budget: int | None) -> Ran:
    """Layers with one number each, on activations of one segment."""
    device = use_sim(allocator="caching").device
    scales = torch.full((LAYERS,), 1.01, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([scales], lr=1e-3)
    data = torch.linspace(-1, 1, SEGMENT // 4).to(device)
    losses = []
    iterations: list[IterationSummary] = []
    with nullcontext() if budget is None else session(budget, device=device, watch=iterations.append):
        for _ in range(STEPS):
            hidden = data
            for scale in scales:
                hidden = torch.sin(hidden * scale)
            loss = hidden.square().mean()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach().cpu())
    return Ran(losses, memory_stats(device), sum(iteration.counts.passive for iteration in iterations))


def test_room_is_made_before_the_allocator_is_full() -> None:
    without = train(None)
    assert (without.stats.reserved_peak_bytes - SMALL) % SEGMENT == 0  # nothing is lost in segments
    budget = without.stats.reserved_peak_bytes - 2 * SEGMENT
    within = train(budget)
    use_sim()
    assert within.passive > 0
    assert (within.stats.ooms, within.stats.retries) == (0, 0)
    assert within.stats.reserved_peak_bytes <= budget
    assert all(torch.equal(mine, right) for mine, right in zip(within.losses, without.losses, strict=True))
