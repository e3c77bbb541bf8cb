"""Sessions of programs that once worked on another stream: that takes segments from the driver, so no arena is left."""

import gc

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from experiments.models.gpt import GptShape
from runtime.device import CachingAllocator, memory_stats, reset_peak_memory, use_sim
from runtime.swap import session
from tests.runtime.swap.training import Trainer

SMALL = GptShape(layers=4, width=64)
"""No request of more than 1 MiB."""
SHAPE = GptShape(layers=8, width=128, heads=8, context=512, batch=4, seed=3)
"""Attention by matrix products asks for several blocks of 32 MiB inside one operator."""


@pytest.mark.parametrize("expandable", [False, True], ids=["segments", "pages"])
def test_a_program_that_once_worked_on_another_stream_keeps_its_budget(expandable: bool) -> None:
    """An operator's inner requests find room that was made before it began; and there is an arena again later."""
    allocator = CachingAllocator(expandable_segments=expandable)
    device = use_sim(allocator=allocator, shapes_only=True, races="off").device
    with sdpa_kernel(SDPBackend.MATH):
        trainer = Trainer(device, SHAPE)
        for _ in range(2):
            trainer.step()
        budget = int(0.6 * memory_stats(device).reserved_peak_bytes)
        del trainer
        gc.collect()
        torch.accelerator.empty_cache()
        reset_peak_memory(device)
        trainer, pools = Trainer(device, SHAPE), []
        with session(budget, device=device) as swapping:
            with torch.Stream(device):
                torch.ones(8192, device=device).add_(1)
            for _ in range(3):
                trainer.step()
                pools.append(swapping._engine.pool_bytes)
        stats = memory_stats(device)
        del trainer
    gc.collect()
    use_sim()
    assert stats.ooms == 0 and stats.reserved_peak_bytes <= budget
    assert pools[0] == 0 and pools[-1] > budget // 4


def test_segments_that_another_stream_has_emptied_are_no_room() -> None:
    """The allocator serves nobody else from them: who counts on them makes it give its cache back, in each step."""
    device = use_sim(allocator=CachingAllocator(), shapes_only=True, races="off").device
    trainer = Trainer(device, SMALL)
    for _ in range(2):
        trainer.step()
    budget = int(0.6 * memory_stats(device).reserved_peak_bytes) >> 20 << 20
    del trainer
    gc.collect()
    device = use_sim(allocator=CachingAllocator(), shapes_only=True, races="off").device
    trainer, retries = Trainer(device, SMALL), 0
    with session(budget, device=device):
        for number in range(5):
            if number > 0:
                with torch.Stream(device):
                    others = [torch.empty(1 << 18, device=device) for _ in range(6)]
                    others[0].add_(1)
                del others
            before = memory_stats(device).retries
            trainer.step()
            retries += memory_stats(device).retries - before
    del trainer
    gc.collect()
    use_sim()
    assert retries == 0
