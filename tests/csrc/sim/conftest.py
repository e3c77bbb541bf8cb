"""The process's one simulated accelerator, set up anew for each test."""

from collections.abc import Iterator

import pytest

from runtime.device import SimDevice, use_sim
from runtime.device.native import why_missing
from solvers.ir.hardware import Device, Hardware, Link

ROUND = Hardware(
    name="round",
    devices=(
        Device(
            name="0",
            memory_bytes=1 << 30,
            flops_per_s={"float32": 1_000_000_000_000, "bfloat16": 2_000_000_000_000},
            bytes_per_s=100_000_000_000,
            launch_us=2.0,
            efficiency={"matmul": 0.5, "other": 1.0},
        ),
    ),
    links=(Link(a="0", b="host", bytes_per_s=1_000_000_000, latency_us=10.0),),
)
"""Numbers to calculate with: a kernel is launched in 2,000 ns, a byte crosses the link in 1 ns after 10,000 ns."""


@pytest.fixture
def sim() -> Iterator[SimDevice]:
    """Raises at a race; clocks, counters and statistics at zero."""
    reason = why_missing("runtime._sim")
    if reason is not None:
        pytest.skip(reason)
    device = use_sim(ROUND)
    yield device
    device.set_tracing(False)
