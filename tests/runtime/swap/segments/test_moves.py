"""Blocks of an arena are put elsewhere on the device, so that what is free lies together; no number changes."""

import pytest
import torch

from runtime.device import CachingAllocator, memory_stats, use_sim
from runtime.device.native import why_missing
from runtime.swap import session
from runtime.swap.report import IterationSummary
from tests.runtime.swap.segments.test_arena import EITHER, MIB, mixed, ready

pytestmark = pytest.mark.skipif(why_missing("runtime._sim") is not None, reason=str(why_missing("runtime._sim")))
TAIL = 10


def numbers(mebibytes: int, value: float, device: torch.device) -> torch.Tensor:
    return torch.full((mebibytes * MIB // 4,), value, device=device)


def scattered(pool_bytes: int, device: torch.device) -> list[bool]:
    """16 MiB free, 4 in use, 16 free, 8 in use, 10 free at the end: a request of 32 has room once the 4 are there."""
    fillers = [numbers(4, 2.0, device) for _ in range((pool_bytes // MIB - 44 - TAIL) // 4)]
    first, between, second, last = (numbers(size, float(size), device) for size in (16, 4, 16, 8))
    del first, second
    four = torch.cat([last, last, last, last])
    values = [*((filler, 2) for filler in fillers), (between, 4), (last, 8), (four, 8)]
    return [bool(tensor[::4096].eq(value).all()) for tensor, value in values]


def test_a_tensor_between_two_free_ranges_moves_and_nothing_leaves() -> None:
    """Once it is known what `cat` asks for: of an operator that never ran the session expects the worst."""
    device = use_sim(allocator=CachingAllocator()).device
    seen: list[IterationSummary] = []
    with session(160 * MIB, device=device, boundaries="given", watch=seen.append) as swapping:
        for _ in range(6):
            numbers(2, 0.0, device).add_(1.0)
            assert all(scattered(swapping._engine.pool_bytes, device))
            swapping.step()
    counts = seen[-1].counts
    assert (counts.moved, counts.moved_bytes, counts.passive) == (1, 4 * MIB, 0)
    assert memory_stats(device).retries == 0


@EITHER
def test_training_in_which_blocks_move_computes_what_it_did(expandable: bool) -> None:
    device = ready(expandable=False).device
    step = mixed(device)
    losses = [step().cpu() for _ in range(8)]
    peak_bytes = memory_stats(device).peak_bytes
    device = ready(expandable).device
    step = mixed(device)
    with session(int(0.6 * peak_bytes), device=device) as swapping:
        assert all(torch.equal(step().cpu(), loss) for loss in losses)
        assert swapping.report().counts.moved > 0
