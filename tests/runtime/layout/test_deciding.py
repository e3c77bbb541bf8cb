"""What a layout is decided by: the device as it was measured, beside what is there."""

from types import SimpleNamespace

import pytest
import torch

from experiments.hardware import read_hardware
from runtime.device import CachingAllocator, memory_limit_bytes, memory_stats, use_sim
from runtime.layout import deciding
from solvers.ir.hardware import Hardware
from tests.accelerators import prepare_sim

REFUSED = prepare_sim()
pytestmark = pytest.mark.skipif(REFUSED is not None, reason=str(REFUSED))
MIB = 1 << 20


def test_a_device_is_measured_in_little_memory_beside_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring is stood in for by one that takes all it can get; the limit, the cache and the peak are as before."""
    device = use_sim(capacity_bytes=2048 * MIB, allocator=CachingAllocator(), races="off").device
    there = torch.zeros(64 * MIB, dtype=torch.uint8, device=device)
    limit, seen = memory_limit_bytes(device), SimpleNamespace(most=0, refused=False)

    def greedy(on: torch.device) -> Hardware:
        taken = []
        try:
            while memory_limit_bytes(on) > 0:
                taken.append(torch.zeros(32 * MIB, dtype=torch.uint8, device=on))
        except torch.OutOfMemoryError:
            seen.refused = True
        seen.most = memory_stats(on).reserved_peak_bytes
        return read_hardware("sim-small")

    monkeypatch.setattr(deciding, "calibrate", greedy)
    deciding._calibrated.cache_clear()
    found = deciding._calibrated(device)
    deciding._calibrated.cache_clear()
    assert seen.refused and seen.most <= 64 * MIB + deciding.MEASURING_BYTES
    assert memory_limit_bytes(device) == limit == found.devices[0].memory_bytes
    stats = memory_stats(device)
    assert stats.reserved_bytes == stats.reserved_peak_bytes == there.nbytes and stats.peak_bytes == there.nbytes
    assert found.links == read_hardware("sim-small").links
