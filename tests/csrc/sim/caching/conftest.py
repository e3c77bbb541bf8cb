"""The simulated device in mode caching, and in mode exact again after each test."""

import gc
from collections.abc import Callable, Iterator

import pytest
import torch

from runtime.device import CachingAllocator, SimDevice, use_sim
from runtime.device.native import why_missing
from tests.csrc.sim.caching.sequences import MIB
from tests.csrc.sim.conftest import ROUND

SetUp = Callable[..., SimDevice]


@pytest.fixture
def cached() -> Iterator[SetUp]:
    """`cached(capacity in MiB, **options)`: the device with that much beyond what other tests left in use."""
    reason = why_missing("runtime._sim")
    if reason is not None:
        pytest.skip(reason)

    gc.collect()

    def set_up(capacity_mib: int, **options: object) -> SimDevice:
        use_sim(ROUND)
        capacity = torch.accelerator.memory_reserved() + capacity_mib * MIB
        return use_sim(ROUND, capacity_bytes=capacity, allocator=CachingAllocator(**options))  # type: ignore[arg-type]

    yield set_up
    use_sim(ROUND)


def block(mib: float) -> torch.Tensor:
    """Uninitialised bytes."""
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device="sim")
