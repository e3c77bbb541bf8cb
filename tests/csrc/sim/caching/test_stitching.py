"""Free pages of several segments get common addresses where the device is full: Algorithm 3, line 6."""

import torch

from tests.csrc.sim.caching.conftest import SetUp, block
from tests.csrc.sim.caching.sequences import MIB


def halves() -> list[torch.Tensor]:
    """40 MiB reserved, of which 8 are free in each of two segments."""
    six = [block(6), block(6), block(8), block(6), block(6), block(8)]
    del six[5], six[2]
    return six


def test_fragments_become_one_block(cached: SetUp) -> None:
    """16 MiB of two segments serve 15; nothing is reserved, and the numbers in it are as in any block."""
    sim = cached(40, stitching=True)
    base = torch.accelerator.memory_reserved()
    kept = halves()
    wide = block(15).fill_(7)
    wide[9 * MIB :].fill_(3)
    assert wide.cpu()[: 9 * MIB].eq(7).all() and wide.cpu()[9 * MIB :].eq(3).all()
    assert sim.stitches() == (1, 2, 16 * MIB)
    assert torch.accelerator.memory_reserved() - base == 40 * MIB
    stats = torch.accelerator.memory_stats()
    assert (stats["num_ooms"], stats["num_alloc_retries"]) == (0, 0)
    assert stats["allocated_bytes.large_pool.current"] == (24 + 16) * MIB
    assert stats["inactive_split_bytes.all.current"] == 0
    assert len(kept) == 4


def test_freed_its_pages_are_their_segments_again(cached: SetUp) -> None:
    sim = cached(40, stitching=True)
    kept = halves()
    wide = block(15)
    del wide
    assert torch.accelerator.memory_stats()["inactive_split_bytes.all.current"] == 16 * MIB
    again = [block(8), block(8)]
    assert sim.stitches().times == 1
    del kept, again
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_stats()["reserved_bytes.large_pool.current"] == 0


def test_only_what_is_missing_is_taken(cached: SetUp) -> None:
    """10 of 16 MiB: one part is whole, of the other 6 MiB stay where they are."""
    sim = cached(40, stitching=True)
    kept = halves()
    wide, small = block(10), block(6)
    assert sim.stitches() == (1, 2, 10 * MIB)
    assert wide.numel() + small.numel() == 16 * MIB and len(kept) == 4


def test_there_is_no_stitching_unless_asked(cached: SetUp) -> None:
    sim = cached(40)
    kept = halves()
    try:
        block(15)
    except torch.OutOfMemoryError:
        assert sim.stitches() == (0, 0, 0) and len(kept) == 4
    else:
        raise AssertionError("two halves served as one block")


def test_another_streams_pages_are_left_alone(cached: SetUp) -> None:
    """They may still be in use there."""
    sim = cached(40, stitching=True)
    with torch.Stream(device="sim"):
        kept = halves()
    try:
        block(15)
    except torch.OutOfMemoryError:
        assert sim.stitches().times == 0 and len(kept) == 4
    else:
        raise AssertionError("pages of another stream were taken")
