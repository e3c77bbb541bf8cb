"""Sessions of programs that once worked on another stream: that takes segments from the driver, so no arena is left."""

import gc

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from experiments.models.gpt import GptShape
from runtime.device import CachingAllocator, memory_stats, reset_peak_memory, use_sim
from runtime.swap import session
from runtime.swap.stages import StageSettings
from tests.runtime.swap.training import Trainer
from tests.soaking import in_soak

SMALL = GptShape(layers=4, width=64)
"""No request of more than 1 MiB."""
SHAPE = GptShape(layers=8, width=128, heads=8, context=512, batch=4, seed=3)
"""Attention by matrix products asks for several blocks of 32 MiB inside one operator."""

LARGE = GptShape(layers=4, width=256, heads=8, context=512, batch=8, seed=3)
COUNTED = ("event_records", "stream_waits", "event_queries")


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


def steps_of(budget: int, *, side: bool) -> list[tuple[int, ...]]:
    """Of each step its events, waits of streams, looks at events, and time in ns; `side`: once on another stream."""
    sim = use_sim(allocator=CachingAllocator(), shapes_only=True, races="off")
    trainer, steps = Trainer(sim.device, LARGE), []
    with session(budget, device=sim.device, stages=StageSettings(1, 2)):
        for number in range(11):
            began, before = sim.now_ns(), sim.counters()
            if side and number == 0:
                with torch.Stream(sim.device):
                    torch.ones(8192, device=sim.device).add_(1)
            trainer.step()
            torch.accelerator.synchronize()
            done = sim.counters()
            counts = [getattr(done, name) - getattr(before, name) for name in COUNTED]
            steps.append((*counts, sim.now_ns() - began))
    del trainer
    gc.collect()
    use_sim()
    return steps


@pytest.mark.parametrize("mib", [in_soak(200), 215])
def test_once_no_other_stream_has_worked_for_an_iteration_steps_are_what_they_would_have_been(mib: int) -> None:
    """In calls of the device's runtime, which cost a host time that is not modelled, and to the nanosecond."""
    without, once = steps_of(mib << 20, side=False), steps_of(mib << 20, side=True)
    assert once[0] != without[0]
    assert once[3:5] == without[3:5], "before policies are tried"
    assert once[-2:] == without[-2:], "under the one that is kept"


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
