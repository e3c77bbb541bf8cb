"""Each test gets a device on which nothing is swapped out, and must leave it so."""

import gc
from collections.abc import Iterator

import pytest
import torch

from runtime.device.native import core
from runtime.swap import release_host_memory
from tests.accelerators import prepare_sim, prepared

gc.freeze()  # what the imports made stays anyway, and would make each collection below slow
prepare_sim()  # while tests are collected: before any backward pass


@pytest.fixture
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """The simulated accelerator, with races raised, or what the test's parameter names."""
    gc.collect()  # a profile counts everything on the device, also what a failed test has left in cycles
    found = prepared(getattr(request, "param", "sim"))
    core.set_host_limit(None)
    yield found
    gc.collect()
    torch.accelerator.synchronize()
    assert core.swapped_out_storages() == 0
    assert not core.swap_guard_is_on()
    release_host_memory()
    assert core.host_stats().held_bytes == 0
