"""The options of mode caching, its limit, and going from one mode to the other."""

from collections.abc import Iterator

import pytest
import torch

from runtime.device import (
    CachingAllocator,
    SimDevice,
    limited_memory,
    memory_limit_bytes,
    memory_stats,
    native,
    use_sim,
)
from solvers.ir.errors import InvalidInput

pytestmark = pytest.mark.skipif(
    native.why_missing("runtime._sim") is not None, reason=str(native.why_missing("runtime._sim"))
)
MIB = 1 << 20


def block(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="sim")


@pytest.fixture
def sim() -> Iterator[SimDevice]:
    yield use_sim(allocator="caching")
    use_sim()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"max_split_size_bytes": 20 * MIB}, "max_split_size_bytes of 20971520 is outside .20971521,"),
        ({"max_split_size_bytes": 5e7}, "max_split_size_bytes of 50000000.0 is no integer: give bytes"),
        ({"max_non_split_rounding_bytes": 4 * MIB}, "max_non_split_rounding_bytes of 4194304 is outside .20971520,"),
        ({"stitching": True, "expandable_segments": True}, "choose one of them"),
        ({"segment_alloc_us": -1.0}, "segment_alloc_us of -1.0 is outside"),
        ({"segment_alloc_us": 1e300}, "segment_alloc_us of 1e.300 is outside"),
        ({"segment_free_us": float("inf")}, "segment_free_us of inf is outside"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, float], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        CachingAllocator(**options)  # type: ignore[arg-type]


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(InvalidInput, match="allocator='buddy' is unknown: choose of 'exact', 'caching'"):
        use_sim(allocator="buddy")  # type: ignore[arg-type]


@pytest.mark.parametrize("most", [-1, 1.5, "all"])
def test_a_number_of_steps_to_keep_is_an_integer(sim: SimDevice, most: object) -> None:
    with pytest.raises(InvalidInput, match=r"most of .*: give the number of steps to keep"):
        sim.record_memory(most)  # type: ignore[arg-type]


def test_segments_are_reserved(sim: SimDevice) -> None:
    before = memory_stats(sim.device)
    kept = block(3 * MIB)
    after = memory_stats(sim.device)
    assert after.allocated_bytes - before.allocated_bytes == kept.nbytes
    assert after.reserved_bytes - before.reserved_bytes == 20 * MIB
    assert torch.accelerator.get_memory_info() == (sim.capacity_bytes - after.reserved_bytes, sim.capacity_bytes)


def test_exact_is_the_default_and_holds_no_segments(sim: SimDevice) -> None:
    block(3 * MIB)
    assert memory_stats(sim.device).reserved_bytes >= 20 * MIB
    again = use_sim()
    before = memory_stats(again.device).reserved_bytes
    kept = block(3 * MIB)
    assert memory_stats(again.device).reserved_bytes == before + kept.nbytes


def test_limited_memory_limits_what_is_reserved(sim: SimDevice) -> None:
    """As CUDA's fraction does; the device stays as large as it is."""
    base = memory_stats(sim.device).reserved_bytes
    with limited_memory(sim.device, base + 24 * MIB):
        assert memory_limit_bytes(sim.device) == base + 24 * MIB
        assert torch.accelerator.get_memory_info()[1] == sim.capacity_bytes
        kept = block(4 * MIB)
        told = f"{base + 20 * MIB} bytes are allowed to be reserved"
        with limited_memory(sim.device, base + 20 * MIB), pytest.raises(torch.OutOfMemoryError, match=told):
            block(512)
        small = block(512)
        with pytest.raises(torch.OutOfMemoryError):
            block(17 * MIB)
    assert memory_limit_bytes(sim.device) == sim.capacity_bytes
    assert block(17 * MIB).numel() + kept.numel() + small.numel() == 21 * MIB + 512


def test_tensors_survive_a_change_of_mode_and_are_counted() -> None:
    exact = use_sim()
    base = memory_stats(exact.device).reserved_bytes
    old = torch.arange(MIB, dtype=torch.int32, device="sim")
    caching = use_sim(allocator="caching")
    assert memory_stats(caching.device).reserved_bytes == base + old.nbytes
    young = torch.arange(MIB, dtype=torch.int32, device="sim")
    assert memory_stats(caching.device).allocated_bytes == base + 2 * old.nbytes
    assert torch.equal(old.cpu(), young.cpu())
    del old
    assert memory_stats(caching.device).reserved_bytes == base + 20 * MIB
    again = use_sim()
    assert memory_stats(again.device).reserved_bytes == base + young.nbytes
    assert young.cpu().sum().item() == sum(range(MIB))
    del young
    assert memory_stats(again.device).reserved_bytes == base
    again.close()


def test_a_capacity_may_be_set_below_what_is_cached(sim: SimDevice) -> None:
    """The next request gives back what is free."""
    base = memory_stats(sim.device).reserved_bytes
    block(40 * MIB)
    sim.set_capacity(base + 24 * MIB)
    kept = block(512)  # of the other pool
    after = memory_stats(sim.device)
    assert (after.reserved_bytes - base, after.retries, after.ooms) == (2 * MIB, 1, 0)
    assert kept.numel() == 512
