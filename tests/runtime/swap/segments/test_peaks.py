"""What the report says was held at most: the allocator's peaks count anew with each place that a session makes."""

import torch
from torch import nn

from runtime.device import CachingAllocator, memory_stats, use_sim
from runtime.swap import session

MIB = 2**20


def test_an_arena_that_goes_back_takes_no_peak_along() -> None:
    device = use_sim(allocator=CachingAllocator(expandable_segments=True)).device
    small = [torch.ones(MIB // 8).to(device) for _ in range(16)]  # no page of its own for what is large
    model = nn.Linear(64, 64).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with session(52 * MIB, device=device) as swapping:
        for _ in range(3):
            held: list[torch.Tensor] = []
            reserved = allocated = 0
            for _ in range(3):
                held.append(torch.ones(18 * MIB // 4, device=device))
                stats = memory_stats(device)
                reserved, allocated = max(reserved, stats.reserved_bytes), max(allocated, stats.allocated_bytes)
            assert sum(float(one[0]) for one in held) == 3
            held.clear()
            optimizer.zero_grad()
            model(torch.ones(32, 64).to(device)).sum().backward()
            optimizer.step()
            report = swapping.report()
            assert report.reserved_peak_bytes is not None
            assert reserved <= report.reserved_peak_bytes <= 52 * MIB
            assert allocated <= report.peak_bytes
    assert reserved > 18 * MIB and len(small) == 16
