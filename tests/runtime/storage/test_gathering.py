"""What stays is moved into few segments: the same bytes elsewhere, and the rest goes back to the driver."""

import pytest
import torch

from runtime.device import CachingAllocator, memory_stats, use_sim
from runtime.device.native import why_missing
from runtime.swap import gather

pytestmark = pytest.mark.skipif(why_missing("runtime._sim") is not None, reason=str(why_missing("runtime._sim")))
MIB = 1 << 20


def scattered(device: torch.device) -> list[torch.Tensor]:
    """Four tensors of 4 MiB, each alone in a segment of 20 MiB."""
    filled = [torch.full((MIB,), float(number), device=device) for number in range(20)]
    return filled[::5]


def test_four_segments_become_one() -> None:
    device = use_sim(allocator="caching").device
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


@pytest.mark.parametrize("expandable", [False, True])
def test_other_allocators_are_left_alone(expandable: bool) -> None:
    device = use_sim(allocator=CachingAllocator(expandable_segments=True) if expandable else "exact").device
    kept = scattered(device)
    addresses = [tensor.data_ptr() for tensor in kept]
    assert gather(kept) == 0
    assert [tensor.data_ptr() for tensor in kept] == addresses
    use_sim()
