"""The device with shapes only, and again with bytes for the tests that come after."""

import gc
from collections.abc import Iterator

import pytest

from runtime.device import SimDevice, use_sim
from runtime.device.native import why_missing
from runtime.swap import release_host_memory
from tests.csrc.sim.conftest import ROUND


@pytest.fixture
def shapes() -> Iterator[SimDevice]:
    """Room for more than this machine has; raises at a race."""
    reason = why_missing("runtime._sim")
    if reason is not None:
        pytest.skip(reason)
    gc.collect()
    yield use_sim(ROUND, capacity_bytes=1 << 41, shapes_only=True)
    gc.collect()
    release_host_memory()
    use_sim(ROUND)
