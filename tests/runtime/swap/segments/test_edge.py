"""A block that begins before the arena and ends in it takes what it takes of the arena."""

import pytest
import torch

from runtime.device import CachingAllocator, memory_stats, use_sim
from runtime.device.native import core, why_missing
from runtime.swap import session

pytestmark = pytest.mark.skipif(why_missing("runtime._sim") is not None, reason=str(why_missing("runtime._sim")))
MIB = 1 << 20


def test_a_block_across_the_arena_s_edge_is_not_taken_for_free() -> None:
    """30 MiB that only autograd knows lie before the arena of expandable pages; they go, and 70 begin where they were.

    40 of these lie in the arena, whose other 30 are free. An operator that asks for 40 needs the 70 gone: the session
    sees to it before the operator begins, so that the allocator has no need to ask.
    """
    device = use_sim(allocator=CachingAllocator(expandable_segments=True)).device
    weight = torch.ones(1, device=device, requires_grad=True)
    kept = (weight.expand(15 * MIB // 4) * 1.0).exp().sum()
    row = torch.ones(MIB // 16, device=device)
    with session(150 * MIB, device=device, boundaries="given"):
        row.repeat(160)  # 40 MiB: what this operator asks for is known from here on
        del kept
        across = torch.full((70 * MIB // 4,), 7.0, device=device)
        asked = core.relief_counts()["under_lock"]
        wide = row.repeat(160)
        assert core.relief_counts()["under_lock"] == asked
        assert wide.sum().item() == 10 * MIB and across[-1].item() == 7.0
    assert memory_stats(device).ooms == memory_stats(device).retries == 0
