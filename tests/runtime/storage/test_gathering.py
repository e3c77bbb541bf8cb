"""What stays is moved into few segments: the same bytes elsewhere, and the rest goes back to the driver."""

import pytest
import torch

from runtime.device import CachingAllocator, memory_stats, use_sim
from runtime.device.native import why_missing
from runtime.storage import gathering
from runtime.swap import gather

pytestmark = pytest.mark.skipif(why_missing("runtime._sim") is not None, reason=str(why_missing("runtime._sim")))
MIB = 1 << 20


def scattered(device: torch.device) -> list[torch.Tensor]:
    """Four tensors of 4 MiB, each alone in a segment of 20 MiB."""
    filled = [torch.full((MIB,), float(number), device=device) for number in range(20)]
    return filled[::5]


@pytest.mark.parametrize("expandable", [False, True])
def test_four_segments_or_pages_become_one(expandable: bool) -> None:
    device = use_sim(allocator=CachingAllocator(expandable_segments=expandable)).device
    kept = scattered(device)
    view = kept[3][:7]
    assert gather(kept) == 60 * MIB
    stats = memory_stats(device)
    assert (stats.reserved_bytes, stats.allocated_bytes) == (20 * MIB, 16 * MIB)
    assert [float(tensor.mean()) for tensor in kept] == [0, 5, 10, 15]
    kept[3][0] = -1.0
    assert float(view[0]) == -1.0
    assert gather(kept) == 0
    use_sim()


def test_what_is_not_given_stays_where_it_is() -> None:
    device = use_sim(allocator="caching").device
    kept = scattered(device)
    address = kept[0].data_ptr()
    gather(kept[1:])
    assert kept[0].data_ptr() == address and memory_stats(device).reserved_bytes == 20 * MIB
    use_sim()


def test_exact_memory_is_left_alone() -> None:
    device = use_sim().device
    kept = scattered(device)
    addresses = [tensor.data_ptr() for tensor in kept]
    assert gather(kept) == 0
    assert [tensor.data_ptr() for tensor in kept] == addresses
    use_sim()


def test_what_does_not_fit_on_the_host_at_once_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of pages can be as long as all parameters."""
    monkeypatch.setattr(gathering, "MOST_AT_ONCE_BYTES", 3 * MIB)
    device = use_sim(allocator=CachingAllocator(expandable_segments=True)).device
    kept = scattered(device)
    assert gather(kept) == 0 and memory_stats(device).reserved_bytes == 80 * MIB
    use_sim()
