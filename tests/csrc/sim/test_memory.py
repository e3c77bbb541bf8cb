"""Capacity without fragmentation, what freeing means across streams, out-of-memory and recovery."""

import gc
from dataclasses import dataclass

import pytest
import torch

from runtime.device import MemoryStats, SimDevice, memory_stats
from tests.csrc.sim.gpt import Trainer

MIB = 1 << 20


@dataclass(frozen=True)
class Room:
    """The device's memory beyond what other tests left in use."""

    sim: SimDevice
    base: int

    def limit(self, size: int) -> None:
        self.sim.set_capacity(self.base + size)

    def stats(self) -> MemoryStats:
        stats = memory_stats(self.sim.device)
        allocated, peak, reserved, reserved_peak = (size - self.base for size in stats[:4])
        return MemoryStats(allocated, peak, reserved, reserved_peak, stats.ooms, stats.retries)


@pytest.fixture
def room(sim: SimDevice) -> Room:
    """Tensors that sit in reference cycles are collected first; statistics are at zero."""
    gc.collect()
    sim.close()
    sim.reset()
    return Room(sim, memory_stats(sim.device).reserved_bytes)


def block(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="sim")


def test_bytes_are_rounded_up_to_512(room: Room) -> None:
    before = torch.accelerator.memory_stats()
    kept = [block(1), block(512), block(513)]
    after, stats = torch.accelerator.memory_stats(), room.stats()
    assert (stats.allocated_bytes, stats.peak_bytes) == (512 + 512 + 1024, 2048)
    assert after["requested_bytes.all.current"] - before["requested_bytes.all.current"] == 1 + 512 + 513
    assert after["allocation.all.current"] - before["allocation.all.current"] == len(kept)
    del kept[1]
    assert room.stats().allocated_bytes == 1536
    assert room.stats().peak_bytes == 2048


def test_what_fits_by_bytes_fits(room: Room) -> None:
    """Every second block is freed: the holes are small, but the bytes are there."""
    room.limit(MIB)
    blocks = [block(4096) for _ in range(256)]
    del blocks[::2]
    whole = block(MIB // 2)
    assert whole.numel() == MIB // 2
    assert torch.accelerator.get_memory_info() == (0, room.sim.capacity_bytes)
    with pytest.raises(torch.OutOfMemoryError):
        block(1)


def test_out_of_memory_tells_size_limit_and_remedy(room: Room) -> None:
    room.limit(MIB)
    kept = block(MIB - 1024)
    told = (
        rf"of 1025 bytes \(1536 rounded up\).* of {room.base + MIB} bytes are in use and 1024 are free: raise capacity"
    )
    with pytest.raises(torch.OutOfMemoryError, match=told):
        block(1025)
    assert room.stats().ooms == 1
    assert kept.numel() == MIB - 1024
    assert block(1024).numel() == 1024


def test_training_goes_on_after_out_of_memory(room: Room) -> None:
    reference = Trainer("cpu").run(3)
    trainer = Trainer("sim")
    torch.manual_seed(1)
    first = trainer.step().cpu()
    state = torch.get_rng_state()
    in_use = room.stats().allocated_bytes
    room.limit(in_use + 60_000)
    with pytest.raises(torch.OutOfMemoryError):
        trainer.step()
    trainer.optimizer.zero_grad(set_to_none=True)
    gc.collect()
    assert room.stats().allocated_bytes <= in_use
    room.limit(64 * MIB)
    torch.set_rng_state(state)
    losses = [first, trainer.step().cpu(), trainer.step().cpu()]
    assert all(torch.equal(mine, cpus) for mine, cpus in zip(losses, reference.losses, strict=True))
    ours = [p.detach().cpu() for p in trainer.model.parameters()]
    assert all(torch.equal(mine, cpus) for mine, cpus in zip(ours, reference.parameters, strict=True))


def test_out_of_memory_comes_out_of_backward_as_itself(room: Room) -> None:
    weight = torch.ones(MIB // 4, device="sim", requires_grad=True)
    loss = (weight * 2).sum()
    room.limit(room.stats().reserved_bytes + 4096)
    with pytest.raises(torch.OutOfMemoryError):
        loss.backward()  # type: ignore[no-untyped-call]


def test_the_peak_is_the_same_in_every_run(room: Room) -> None:
    def peak() -> int:
        trainer = Trainer("sim")
        trainer.run(2)
        return room.stats().peak_bytes

    assert peak() == peak()


def test_a_kernels_temporaries_count(room: Room) -> None:
    """A sort of a strided tensor needs a contiguous copy, on the CPU as on a device."""
    table = torch.rand(64, 1024, device="sim")
    torch.accelerator.reset_peak_memory_stats()
    values, indices = table.sort(dim=0)
    kept = table.nbytes + values.nbytes + indices.nbytes
    assert room.stats().allocated_bytes == kept
    assert room.stats().peak_bytes >= kept


def test_resizing_a_storage_moves_exact_bytes(room: Room) -> None:
    tensor = torch.arange(1024, device="sim", dtype=torch.int32)
    tensor.untyped_storage().resize_(0)
    assert room.stats().allocated_bytes == 0
    tensor.untyped_storage().resize_(4096)
    assert room.stats().allocated_bytes == 4096
    grown = torch.arange(4, device="sim").resize_(8)
    assert grown[:4].tolist() == [0, 1, 2, 3]


def test_a_recorded_block_waits_for_its_stream(room: Room) -> None:
    """The copy takes 10,000 ns + 1 ns a byte: until the host's clock is there, the bytes are not free."""
    room.limit(3 * MIB + 4096)
    side, host = torch.Stream(device="sim"), torch.empty(MIB, dtype=torch.uint8, pin_memory=True)
    source = block(MIB).fill_(7)
    side.wait_stream(torch.accelerator.current_stream())
    with side:
        host.copy_(source, non_blocking=True)
    source.record_stream(side)
    del source
    stats = room.stats()
    assert (stats.allocated_bytes, stats.reserved_bytes) == (0, MIB)
    kept = block(2 * MIB + 4096)
    before = room.sim.host_ns()
    late = block(MIB).fill_(9)
    assert room.stats().retries == 1
    assert room.sim.host_ns() - before > MIB - 100_000
    side.synchronize()
    del kept
    assert host.eq(7).all() and late.eq(9).all()
    assert room.sim.races() == []


def test_bytes_that_another_stream_freed_are_not_had_before_it_is_done_with_them(room: Room) -> None:
    room.limit(2 * MIB)
    busy = block(2 * MIB).fill_(1)
    del busy
    compute_end = room.sim.now_ns()
    with torch.Stream(device="sim") as side:
        taken = block(2 * MIB)
    assert room.stats().retries == 1
    assert room.sim.host_ns() == compute_end
    del taken
    side.synchronize()


def test_bytes_that_another_stream_freed_are_there_for_one_that_waited(room: Room) -> None:
    room.limit(2 * MIB)
    side = torch.Stream(device="sim")
    busy = block(2 * MIB).fill_(1)
    del busy
    side.wait_stream(torch.accelerator.current_stream())
    with side:
        taken = block(2 * MIB)
    assert room.stats().retries == 0
    del taken
    side.synchronize()


def test_what_a_stream_freed_before_a_reset_counts_no_more(room: Room) -> None:
    """It did, with the next bytes that the stream freed: steps behind other work of a process waited for nothing."""
    block(2 * MIB).fill_(1)
    room.sim.synchronize()
    room.sim.reset()
    room.limit(3 * MIB)
    busy = block(MIB).fill_(1)
    del busy
    before = room.sim.host_ns()
    with torch.Stream(device="sim") as side:
        taken = block(2 * MIB)
    assert room.stats().retries == 0 and room.sim.host_ns() == before
    del taken
    side.synchronize()


def test_the_stream_itself_may_reuse_at_once(room: Room) -> None:
    room.limit(2 * MIB)
    for _ in range(5):
        block(2 * MIB).fill_(1)
    assert room.stats().retries == 0
    assert room.sim.host_ns() == 5 * 2_000


def test_pinned_bytes_are_counted_until_their_copies_have_moved(room: Room) -> None:
    before = room.sim.counters().pinned_bytes
    source = torch.full((MIB,), 3, dtype=torch.uint8).pin_memory()
    target = block(MIB)
    assert room.sim.counters().pinned_bytes == before + MIB
    target.copy_(source, non_blocking=True)
    del source
    assert room.sim.counters().pinned_bytes == before + MIB
    room.sim.synchronize()
    assert room.sim.counters().pinned_bytes == before
    assert room.sim.counters().pinned_peak_bytes >= before + MIB
    assert target.eq(3).all()


def test_freed_pages_return_to_the_system(room: Room) -> None:
    def resident_bytes() -> int:
        with open("/proc/self/statm") as pages:
            return int(pages.read().split()[1]) * 4096

    before = resident_bytes()
    for _ in range(4):
        block(128 * MIB).fill_(1)
    assert resident_bytes() - before < 256 * MIB
    torch.accelerator.empty_cache()
    assert resident_bytes() - before < 32 * MIB


def test_the_profiler_is_told_of_every_block(room: Room) -> None:
    with torch.profiler.profile(profile_memory=True) as profile:
        kept = block(4096)
        block(8192)
    used = sum(event.self_device_memory_usage for event in profile.key_averages())
    assert used == kept.nbytes
