"""What the driver's calls cost in virtual time, refusals in words, and statistics under PyTorch's names."""

import pytest
import torch

from tests.csrc.sim.caching.conftest import SetUp, block
from tests.csrc.sim.caching.sequences import MIB


def test_a_segment_costs_the_host_once_and_its_blocks_nothing(cached: SetUp) -> None:
    sim = cached(64, segment_alloc_us=70.0)
    kept = [block(4), block(4)]
    assert sim.host_ns() == 70_000
    del kept
    again = block(8)
    assert sim.host_ns() == 70_000 and again.numel() == 8 * MIB


def test_a_page_of_an_expandable_segment_costs_as_much(cached: SetUp) -> None:
    sim = cached(128, expandable_segments=True, segment_alloc_us=70.0)
    kept = block(50)
    assert sim.host_ns() == 3 * 70_000 and kept.numel() == 50 * MIB


def test_a_retry_waits_for_the_device_and_for_the_driver(cached: SetUp) -> None:
    """[release_cached_blocks] A fill of 32 MiB takes 335,545 ns at 100 GB/s; it must end before its segment goes."""
    sim = cached(48, segment_alloc_us=10.0, segment_free_us=30.0)
    busy = block(32).fill_(1)
    end = sim.now_ns()
    assert end == 10_000 + 2_000 + -(-32 * MIB * 10**9 // 100_000_000_000)
    del busy
    kept = block(40)
    assert sim.host_ns() == end + 30_000 + 10_000
    stats = torch.accelerator.memory_stats()
    assert (stats["num_alloc_retries"], stats["num_ooms"], stats["num_sync_all_streams"]) == (1, 0, 1)
    assert (stats["num_device_alloc"], stats["num_device_free"]) == (2, 1)
    assert kept.numel() == 40 * MIB


def test_a_refusal_names_what_is_reserved_but_unallocated(cached: SetUp) -> None:
    """[malloc] PyTorch's words, in bytes: 12 and 9 of 32 MiB that are reserved, of 48."""
    sim = cached(48)
    outside = torch.accelerator.memory_reserved()
    kept = [block(12), block(9)]
    told = (
        rf"tried to allocate {20 * MIB} bytes for a request of {19 * MIB + 512} bytes\. The device has a total "
        rf"capacity of {sim.capacity_bytes} bytes of which {16 * MIB} bytes are free\. Of the allocated memory "
        rf"{21 * MIB + outside} bytes are allocated by PyTorch, and {11 * MIB} bytes are reserved by PyTorch but "
        r"unallocated: raise capacity_bytes .* try expandable_segments=True"
    )
    with pytest.raises(torch.OutOfMemoryError, match=told):
        block(19 + 512 / MIB)
    assert torch.accelerator.memory_stats()["num_ooms"] == 1 and len(kept) == 2


def test_statistics_have_pytorchs_pools(cached: SetUp) -> None:
    cached(256)
    kept = [block(0.5), block(4), block(30)]
    stats = torch.accelerator.memory_stats()
    names = ("small_pool", "large_pool")
    assert [stats[f"segment.{pool}.current"] for pool in names] == [1, 2]
    assert [stats[f"reserved_bytes.{pool}.current"] // MIB for pool in names] == [2, 50]
    assert [stats[f"allocated_bytes.{pool}.current"] for pool in names] == [MIB // 2, 34 * MIB]
    assert [stats[f"inactive_split_bytes.{pool}.current"] for pool in names] == [3 * MIB // 2, 16 * MIB]
    assert [stats[f"inactive_split.{pool}.current"] for pool in names] == [1, 1]
    assert [stats[f"active.{pool}.allocated"] for pool in names] == [1, 2]
    del kept[2]
    assert torch.accelerator.memory_stats()["allocated_bytes.large_pool.peak"] == 34 * MIB
    torch.accelerator.reset_peak_memory_stats()
    after = torch.accelerator.memory_stats()
    assert after["allocated_bytes.large_pool.peak"] == 4 * MIB
    assert after["reserved_bytes.large_pool.peak"] == 50 * MIB
    assert after["oversize_segments.current"] == 0


def test_oversize_blocks_are_counted(cached: SetUp) -> None:
    """[alloc_found_block, alloc_block] Of `max_split_size_bytes` and more."""
    cached(256, max_split_size_bytes=32 * MIB)
    kept = [block(24), block(32)]
    stats = torch.accelerator.memory_stats()
    assert (stats["oversize_allocations.current"], stats["oversize_segments.current"]) == (1, 1)
    del kept
    assert torch.accelerator.memory_stats()["oversize_allocations.current"] == 0


def test_oversize_blocks_are_counted_off_under_other_rules(cached: SetUp) -> None:
    """What was counted as oversize, by the rules of then, is no more once it is given back, whatever the rules are."""
    before = torch.accelerator.memory_stats()
    cached(256, max_split_size_bytes=32 * MIB)
    cached_only, kept = block(40), block(48)
    del cached_only
    cached(256)
    del kept
    torch.accelerator.empty_cache()
    after = torch.accelerator.memory_stats()
    for name in ("oversize_segments.current", "oversize_allocations.current"):
        assert after[name] == before.get(name, 0) == 0
