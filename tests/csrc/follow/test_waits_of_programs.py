"""Random loops in sessions and under plans, on every kind of allocator: nothing waits under its lock.

A session may end for lack of memory, which is a sentence; a wait would stop all threads that ask for memory. Numbers
are compared elsewhere (`tests.runtime.swap.fuzz`): here the device has shapes only, so that segments may be large.
"""

import random
from collections.abc import Callable

import pytest
import torch

from runtime.device import CachingAllocator, memory_stats, sim_hardware, use_sim
from runtime.device.native import core
from runtime.profile import profile_step
from runtime.swap import SwapExecutor, session
from runtime.swap.surroundings import relieved
from solvers.planner import planner
from tests.forbidden_waits import none_forbidden

ALLOCATORS: dict[str, str | CachingAllocator] = {
    "exact": "exact",
    "segments": CachingAllocator(),
    "pages": CachingAllocator(expandable_segments=True),
}
EACH = pytest.mark.parametrize("allocator", ALLOCATORS)
STEPS, SEEDS = 3, 6
MIB = 1 << 20


def ready(allocator: str) -> torch.device:
    return use_sim(allocator=ALLOCATORS[allocator], shapes_only=True, capacity_bytes=64 << 30).device  # type: ignore[arg-type]


def drawn(rng: random.Random, device: torch.device) -> Callable[[], None]:
    """Activations of 4 to 48 MiB, no two alike, and at times memory that no operator asks for."""
    sizes = [rng.randrange(4, 48) * MIB // 4 for _ in range(rng.randint(5, 9))]
    scales = [torch.ones(1, device=device, requires_grad=True) for _ in sizes]
    optimizer = torch.optim.SGD(scales, lr=1e-3, momentum=0.9, foreach=False)
    data = [torch.ones(size, device=device) for size in sizes]
    scratch = [rng.choice((0, 0, 24, 72)) * MIB for _ in sizes]

    def step() -> None:
        loss = torch.zeros(1, device=device)
        for one, scale, extra in zip(data, scales, scratch, strict=True):
            hidden = torch.sin(one * scale)
            beside = torch.empty(extra, dtype=torch.uint8, device=device)
            loss = loss + torch.tanh(hidden).square().mean()
            del beside
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return step


def peak_bytes(seed: int, allocator: str) -> int:
    """Of the loop without a budget."""
    device = ready(allocator)
    step = drawn(random.Random(seed), device)
    for _ in range(2):
        step()
    return memory_stats(device).peak_bytes


@EACH
def test_sessions_wait_for_nothing_under_the_lock(device: torch.device, allocator: str) -> None:
    asked, completed = core.relief_counts()["under_lock"], 0
    for seed in range(SEEDS):
        peak, rng = peak_bytes(seed, allocator), random.Random(seed)
        following = ready(allocator)
        step = drawn(rng, following)
        with none_forbidden():
            try:
                with session(int(rng.uniform(0.5, 1.0) * peak), device=following) as swapping:
                    for _ in range(STEPS):
                        step()
                    assert swapping.report().waits_under_lock == 0
                completed += 1
            except torch.OutOfMemoryError:
                pass
        del step
    use_sim()
    assert completed > 0
    assert (core.relief_counts()["under_lock"] > asked) == (allocator != "exact")


@EACH
def test_planned_runs_wait_for_nothing_under_the_lock(device: torch.device, allocator: str) -> None:
    """Whose allocator asks, too, where somebody has connected it."""
    planned = ready(allocator)
    step = drawn(random.Random(3), planned)
    graph = profile_step(step, planned)
    plan = planner("greedy-swap")(graph, sim_hardware(), "95%").plan
    assert plan is not None
    executor = SwapExecutor(plan, graph, trace=False)
    with none_forbidden(), relieved(planned):
        for _ in range(STEPS):
            assert executor.run(step).counts.swapped_out > 0
    executor.close()
    del step
    use_sim()
