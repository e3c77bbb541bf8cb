"""When the bytes of a block that another stream still reads are free again: what PyTorch's way costs, and how long it
takes, counted in kernels."""

import ctypes
import gc
from collections.abc import Callable, Iterator

import pytest
import torch

from runtime.device import SimDevice, use_sim
from runtime.device.native import load
from solvers.ir.errors import InvalidInput
from tests.csrc.sim.conftest import ROUND

MIB = 1 << 20
QUERY_NS = 700


@pytest.fixture
def asking(sim: SimDevice) -> Iterator[SimDevice]:
    """A device whose allocator pays 700 ns for each look at an event."""
    gc.collect()
    sim.close()
    yield use_sim(ROUND, event_query_ns=QUERY_NS)


def block(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="sim")


def leave_behind(size: int, side: torch.Stream) -> None:
    """Copies a fresh block out on the side stream and frees it: it waits there for the copy."""
    host, source = torch.empty(size, dtype=torch.uint8, pin_memory=True), block(size)
    side.wait_stream(torch.accelerator.current_stream())
    with side:
        host.copy_(source, non_blocking=True)
    source.record_stream(side)


def host_cost(sim: SimDevice, act: Callable[[], object]) -> int:
    before = sim.host_ns()
    act()
    return sim.host_ns() - before


def test_each_allocation_looks_at_the_oldest_event_of_each_stream(asking: SimDevice) -> None:
    one, other = torch.Stream(device="sim"), torch.Stream(device="sim")
    assert host_cost(asking, lambda: block(512)) == 0
    leave_behind(MIB, one)
    assert host_cost(asking, lambda: block(512)) == QUERY_NS
    leave_behind(MIB, one)
    assert host_cost(asking, lambda: block(512)) == QUERY_NS
    leave_behind(MIB, other)
    assert host_cost(asking, lambda: block(512)) == 2 * QUERY_NS
    asking.synchronize()


def test_events_that_are_over_are_each_looked_at_once(asking: SimDevice) -> None:
    side = torch.Stream(device="sim")
    for _ in range(3):
        leave_behind(MIB, side)
    asking.synchronize()
    assert host_cost(asking, lambda: block(512)) == 3 * QUERY_NS
    assert host_cost(asking, lambda: block(512)) == 0
    assert asking.counters().event_queries == 2 + 3  # Two while the blocks were made.


def test_looking_is_free_unless_it_is_modelled(sim: SimDevice) -> None:
    side = torch.Stream(device="sim")
    leave_behind(MIB, side)
    assert host_cost(sim, lambda: block(512)) == 0
    sim.synchronize()


def test_a_price_below_zero_is_refused(sim: SimDevice) -> None:
    with pytest.raises(InvalidInput, match=r"event_query_ns of -1 is outside \[0, .*: a look at an event takes time"):
        use_sim(ROUND, event_query_ns=-1)


def test_a_recorded_block_counts_the_kernels_until_the_allocator_finds_it_free(sim: SimDevice) -> None:
    """The copy takes 1,058,576 ns, a launch 2,000: the host is past the copy's end after 530 kernels, not 529."""
    side, ticking = torch.Stream(device="sim"), torch.zeros(1, device="sim")
    leave_behind(MIB, side)
    for _ in range(500):
        ticking.add_(1)
        block(512)
    assert sim.reuse_intervals() == []
    for _ in range(50):
        ticking.add_(1)
        block(512)
    assert sim.reuse_intervals() == [530]
    sim.reset()
    assert sim.reuse_intervals() == []


def hand_over(tensor: torch.Tensor, stream: torch.Stream) -> None:
    """What the swap engine tells sim when it sends a storage away."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = pointer(load("runtime._sim").handover_observer, b"bayplan.handover")
    told = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64)(address)
    told(tensor.data_ptr(), tensor.nbytes, stream.stream_id)


def swap_out(source: torch.Tensor, side: torch.Stream) -> torch.Tensor:
    host = torch.empty(source.nbytes, dtype=torch.uint8, pin_memory=True)
    side.wait_stream(torch.accelerator.current_stream())
    hand_over(source, side)
    with side:
        host.copy_(source, non_blocking=True)
    return host


def test_a_block_handed_over_counts_the_kernels_until_it_is_released(sim: SimDevice) -> None:
    side, ticking, source = torch.Stream(device="sim"), torch.zeros(1, device="sim"), block(MIB).fill_(1)
    host = swap_out(source, side)
    for _ in range(7):
        ticking.add_(1)
    torch.accelerator.current_stream().wait_stream(side)
    del source
    assert sim.reuse_intervals() == [7]
    sim.synchronize()
    assert host.eq(1).all()


def test_a_block_that_the_program_got_back_does_not_count(sim: SimDevice) -> None:
    side, source = torch.Stream(device="sim"), block(MIB).fill_(1)
    swap_out(source, side)
    torch.accelerator.current_stream().wait_stream(side)
    source.add_(1)
    del source
    assert sim.reuse_intervals() == []


@pytest.mark.parametrize("races", ["raise", "off"])
def test_intervals_do_not_depend_on_the_race_check(sim: SimDevice, races: str) -> None:
    load("runtime._sim").set_races(races)
    test_a_block_handed_over_counts_the_kernels_until_it_is_released(sim)
    sim.reset()
    test_a_block_that_the_program_got_back_does_not_count(sim)
