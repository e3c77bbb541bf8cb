"""A request that does not fit asks for help before it is refused: who is asked, when, how often, with what numbers."""

import ctypes
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
import torch

from runtime import device as devices
from runtime.device import SimDevice, memory_stats
from runtime.device.native import load

MIB = 1 << 20
Handler = Callable[[int, int, int], bool]
_NATIVE = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_uint)


def block(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="sim")


@dataclass
class Desk:
    """Answers requests for help, and writes down what was asked."""

    sim: SimDevice
    base: int
    asked: list[tuple[int, int, int]] = field(default_factory=list)
    keep: list[object] = field(default_factory=list)

    def limit(self, size: int) -> None:
        self.sim.set_capacity(self.base + size)

    def answer(self, handler: Handler) -> None:
        def noted(size: int, missing: int, attempt: int) -> bool:
            self.asked.append((size, missing, attempt))
            return handler(size, missing, attempt)

        function = _NATIVE(noted)
        new_capsule = ctypes.pythonapi.PyCapsule_New
        new_capsule.restype, new_capsule.argtypes = (
            ctypes.py_object,
            [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
        )
        load("runtime._sim").set_pressure_handler(
            new_capsule(ctypes.cast(function, ctypes.c_void_p), b"bayplan.pressure", None)
        )
        self.keep.append(function)

    def attempts(self) -> list[int]:
        return [attempt for _, _, attempt in self.asked]


@pytest.fixture
def desk(sim: SimDevice) -> Iterator[Desk]:
    gc.collect()
    sim.close()
    sim.reset()
    desk = Desk(sim, memory_stats(sim.device).reserved_bytes)
    yield desk
    load("runtime._sim").set_pressure_handler(None)


def test_the_handler_frees_block_by_block_until_the_request_fits(desk: Desk) -> None:
    """Three of four blocks of 1 MiB are in use; a request of 3 MiB lacks 2, so that two must go."""
    desk.limit(4 * MIB)
    hoard = [block(MIB) for _ in range(3)]
    desk.answer(lambda size, missing, attempt: attempt > 0 and hoard.pop() is not None)
    assert block(3 * MIB - 100).numel() == 3 * MIB - 100
    assert desk.asked == [(3 * MIB, 2 * MIB, 0), (3 * MIB, 2 * MIB, 1), (3 * MIB, MIB, 2)]
    assert len(hoard) == 1
    assert memory_stats(desk.sim.device).ooms == 0


def test_what_fits_asks_nobody(desk: Desk) -> None:
    desk.limit(2 * MIB)
    desk.answer(lambda *_: False)
    kept = [block(MIB), block(MIB)]
    assert desk.asked == [] and len(kept) == 2


def test_without_help_it_is_refused_in_the_same_sentence(desk: Desk) -> None:
    desk.limit(MIB)
    desk.answer(lambda *_: False)
    with pytest.raises(torch.OutOfMemoryError, match=r"of 2097152 bytes .* does not fit, .* raise capacity_bytes"):
        block(2 * MIB)
    assert desk.attempts() == [0, 1]
    assert memory_stats(desk.sim.device).ooms == 1


def test_the_first_attempt_saves_the_hosts_wait_and_the_others_come_after_it(desk: Desk) -> None:
    """A block that a copy of 1,058,576 ns still reads is freed: the host jumps there after attempt 0, not before."""
    desk.limit(2 * MIB)
    side, host = torch.Stream(device="sim"), torch.empty(MIB, dtype=torch.uint8, pin_memory=True)
    source, spare = block(MIB).fill_(7), [block(MIB)]
    side.wait_stream(torch.accelerator.current_stream())
    with side:
        host.copy_(source, non_blocking=True)
    source.record_stream(side)
    del source
    clocks: list[int] = []

    def handler(size: int, missing: int, attempt: int) -> bool:
        clocks.append(desk.sim.host_ns())
        return attempt > 0 and spare.pop() is not None

    desk.answer(handler)
    kept = block(MIB)
    assert desk.attempts() == [0]
    assert desk.sim.host_ns() - clocks[0] > MIB - 100_000
    more = block(MIB)
    assert desk.attempts() == [0, 0, 1]
    assert clocks[2] == clocks[1] == desk.sim.host_ns()
    side.synchronize()
    assert host.eq(7).all() and kept.numel() == more.numel()


def test_attempt_0_can_spare_the_host_the_wait(desk: Desk) -> None:
    desk.limit(MIB)
    spare = [block(MIB)]
    desk.answer(lambda *_: spare.pop() is not None)
    before = desk.sim.host_ns()
    assert block(MIB).numel() == MIB
    assert desk.sim.host_ns() == before and memory_stats(desk.sim.device).retries == 0


def test_a_kernels_own_memory_asks_too(desk: Desk) -> None:
    """The sum's result is allocated inside the CPU's kernel; the numbers are right all the same."""
    left, right = torch.full((MIB // 4,), 2.0, device="sim"), torch.full((MIB // 4,), 3.0, device="sim")
    spare = [block(MIB)]
    desk.limit(3 * MIB)
    desk.answer(lambda size, missing, attempt: bool(spare) and spare.pop() is not None)
    total = left + right
    assert desk.asked == [(MIB, MIB, 0)]
    assert total.cpu().eq(5).all()


def test_a_kernel_under_way_gets_bytes_whose_copy_it_was_made_to_wait_for(desk: Desk) -> None:
    """The handler queues a copy of a block, lets the compute stream wait for it, and frees it: the kernel that asked
    writes its result there, after the copy has read the old bytes."""
    desk.limit(2 * MIB)
    ones = torch.ones(MIB // 4, device="sim")
    leaving = [torch.full((MIB // 4,), 7.0, device="sim")]
    host = torch.zeros(MIB // 4).pin_memory()
    side = torch.Stream(device="sim")
    compute = torch.accelerator.current_stream()

    def swap_out(size: int, missing: int, attempt: int) -> bool:
        if not leaving:
            return False
        side.wait_stream(compute)
        with side:
            host.copy_(leaving[0], non_blocking=True)
        compute.wait_stream(side)
        leaving.clear()
        return True

    desk.answer(swap_out)
    result = ones.neg()
    assert desk.attempts() == [0]
    side.synchronize()
    assert host.eq(7).all() and result.cpu().eq(-1).all()
    assert desk.sim.now_ns() > MIB  # The kernel began after the copy's 10,000 ns + 1 ns a byte.
    assert desk.sim.races() == []


def test_the_handler_is_not_asked_for_itself(desk: Desk) -> None:
    desk.limit(MIB)
    kept = block(MIB)
    told: list[str] = []

    def greedy(size: int, missing: int, attempt: int) -> bool:
        try:
            block(512)
        except torch.OutOfMemoryError as error:
            told.append(str(error))
        return False

    desk.answer(greedy)
    with pytest.raises(torch.OutOfMemoryError):
        block(MIB)
    assert desk.attempts() == [0, 1] and len(told) == 2
    assert kept.numel() == MIB


def test_a_backward_pass_asks_from_its_own_thread(desk: Desk) -> None:
    weight = torch.ones(MIB // 4, device="sim", requires_grad=True)
    loss = (weight * 2).sum()
    spare = [block(4 * MIB)]
    desk.sim.set_capacity(memory_stats(desk.sim.device).reserved_bytes + 4096)
    desk.answer(lambda *_: bool(spare) and spare.pop() is not None)
    loss.backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None and weight.grad.cpu().eq(2).all()
    assert desk.attempts() == [0]


def test_only_the_named_capsule_is_taken() -> None:
    with pytest.raises(ValueError, match="PyCapsule_GetPointer"):
        load("runtime._sim").set_pressure_handler(load("runtime._sim").handover_observer)


def test_limited_memory_asks_for_help_where_more_is_in_use(desk: Desk) -> None:
    """8 MiB are in use and 5 are allowed: the next request of 1 MiB makes four blocks go."""
    hoard = [block(MIB) for _ in range(8)]
    before = desk.sim.capacity_bytes
    desk.answer(lambda size, missing, attempt: bool(hoard) and hoard.pop() is not None)
    with devices.limited_memory(desk.sim.device, desk.base + 5 * MIB):
        assert desk.asked == []
        kept = block(MIB)
        assert len(hoard) == 4
    assert desk.sim.capacity_bytes == before and kept.numel() == MIB
    hoard.clear()
