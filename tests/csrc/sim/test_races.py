"""The happens-before check names both sides of a race, and is silent about programs that wait."""

import pytest
import torch

from runtime.device import SimDevice, use_sim
from tests.csrc.sim.conftest import ROUND

N = 4096


@pytest.fixture
def recording(sim: SimDevice) -> SimDevice:
    sim.synchronize()
    return use_sim(ROUND, races="record")


def compute() -> torch.Stream:
    return torch.accelerator.current_stream()


def device_bytes(value: int = 0) -> torch.Tensor:
    return torch.full((N,), value, dtype=torch.uint8, device="sim")


def pinned_bytes(value: int = 0) -> torch.Tensor:
    return torch.full((N,), value, dtype=torch.uint8).pin_memory()


class Swap:
    """A tensor goes out and comes back in another block; `dropped` leaves one wait out."""

    WAITS = ("compute to out", "out to release", "release to in", "in to use")

    def __init__(self, dropped: str | None) -> None:
        self.dropped = dropped
        self.out, self.in_ = torch.Stream(device="sim"), torch.Stream(device="sim")

    def wait(self, name: str, waiter: torch.Stream, waited: torch.Stream) -> None:
        if name != self.dropped:
            waiter.wait_stream(waited)

    def run(self) -> torch.Tensor:
        host, x = pinned_bytes(), device_bytes(5)
        torch.accelerator.synchronize()
        x.add_(1)
        self.wait("compute to out", self.out, compute())
        with self.out:
            host.copy_(x, non_blocking=True)
        self.wait("out to release", compute(), self.out)
        del x
        other = device_bytes(9)
        other.add_(1)
        y = torch.empty(N, dtype=torch.uint8, device="sim")
        self.wait("release to in", self.in_, compute())
        with self.in_:
            y.copy_(host, non_blocking=True)
        self.wait("in to use", compute(), self.in_)
        return y + 1


def test_a_swap_with_all_its_waits_is_clean_and_right(recording: SimDevice) -> None:
    assert Swap(None).run().eq(7).all()
    assert recording.races() == []


@pytest.mark.parametrize(
    ("dropped", "first", "second"),
    [
        ("compute to out", "add_", "copy to host"),
        ("out to release", "copy to host", "free"),
        ("release to in", "allocation", "copy to device"),
        ("in to use", "copy to device", "add"),
    ],
)
def test_every_dropped_wait_of_a_swap_is_named(recording: SimDevice, dropped: str, first: str, second: str) -> None:
    Swap(dropped).run()
    recording.synchronize()
    assert (first, second) in [(race.first.op, race.second.op) for race in recording.races()]


def test_the_sentence_names_operators_streams_bytes_and_remedy(recording: SimDevice) -> None:
    x, side = device_bytes(), torch.Stream(device="sim")
    torch.accelerator.synchronize()
    with recording.label("layer 3"):
        x[1024:2048].add_(1)
    with side:
        x[1536:].sum()
    (race,) = recording.races()
    assert (race.first.op, race.first.write, race.first.stream, race.first.label) == ("add_", True, 0, "layer 3")
    assert (race.first.begin, race.first.end) == (1024, 2048)
    assert (race.second.op, race.second.write, race.second.stream) == ("sum", False, side.stream_id)
    assert (race.second.begin, race.second.end) == (1536, N)
    assert race.block == f"device block of {N} bytes"
    assert "read by 'sum'" in race.sentence and "write by 'add_' [layer 3]" in race.sentence
    assert f"let stream {side.stream_id} wait for an event recorded on stream 0" in race.sentence


def test_a_race_is_raised_where_it_happens(sim: SimDevice) -> None:
    x, side = device_bytes(), torch.Stream(device="sim")
    with side, pytest.raises(RuntimeError, match=r"race on a device block .* is not ordered after write by 'fill_'"):
        x.add_(1)
    sim.synchronize()
    assert x.add_(1).eq(1).all()


def test_off_is_silent(sim: SimDevice) -> None:
    sim = use_sim(ROUND, races="off")
    x = device_bytes()
    with torch.Stream(device="sim"):
        x.add_(1)
    sim.synchronize()
    assert sim.races() == []


@pytest.mark.parametrize("waits", [True, False])
def test_one_pinned_block_for_two_copies(recording: SimDevice, waits: bool) -> None:
    """Swap-out then swap-in of one host block on two streams, and the next swap-out into it."""
    host, x, y = pinned_bytes(), device_bytes(1), device_bytes(2)
    out, in_ = torch.Stream(device="sim"), torch.Stream(device="sim")
    torch.accelerator.synchronize()
    with out:
        host.copy_(x, non_blocking=True)
    if waits:
        in_.wait_stream(out)
    with in_:
        y.copy_(host, non_blocking=True)
    if waits:
        out.wait_stream(in_)
    with out:
        host.copy_(x, non_blocking=True)
    torch.accelerator.synchronize()
    found = [(race.first.op, race.second.op, race.block) for race in recording.races()]
    block = f"pinned block of {N} bytes"
    told = [("copy to host", "copy to device", block), ("copy to device", "copy to host", block)]
    assert found == ([] if waits else told)


def test_disjoint_parts_of_a_pinned_block_do_not_race(recording: SimDevice) -> None:
    host, x = pinned_bytes(), device_bytes(1)
    torch.accelerator.synchronize()
    for half in (slice(0, N // 2), slice(N // 2, N)):
        with torch.Stream(device="sim"):
            host[half].copy_(x[half], non_blocking=True)
    torch.accelerator.synchronize()
    assert host.eq(1).all() and recording.races() == []


def test_freeing_without_record_stream_is_a_race(recording: SimDevice) -> None:
    x, side = device_bytes(), torch.Stream(device="sim")
    torch.accelerator.synchronize()
    with side:
        x.sum()
    del x
    assert recording.races() == []  # Nobody has the bytes yet.
    device_bytes()
    (race,) = recording.races()
    assert (race.first.op, race.second.op) == ("sum", "free")


def test_waiting_between_the_free_and_the_next_allocation_is_in_time(recording: SimDevice) -> None:
    """As FSDP does: its stream waits for the last readers of what it freed before it allocates again."""
    x, side = device_bytes(), torch.Stream(device="sim")
    torch.accelerator.synchronize()
    with side:
        x.sum()
    del x
    compute().wait_stream(side)
    device_bytes()
    assert recording.races() == []


@pytest.mark.parametrize("how", ["record_stream", "wait", "synchronize"])
def test_freeing_with_care_is_none(recording: SimDevice, how: str) -> None:
    x, side = device_bytes(), torch.Stream(device="sim")
    torch.accelerator.synchronize()
    with side:
        x.sum()
    if how == "record_stream":
        x.record_stream(side)
    elif how == "wait":
        compute().wait_stream(side)
    else:
        side.synchronize()
    del x
    device_bytes()
    assert recording.races() == []


def test_resizing_a_storage_reads_it(recording: SimDevice) -> None:
    data, side = torch.zeros(1024, device="sim"), torch.Stream(device="sim")
    torch.accelerator.synchronize()
    with side:
        data.add_(1)
    data.record_stream(side)  # excuses the free, not the read
    data.untyped_storage().resize_(8192)
    (race,) = recording.races()
    assert (race.first.op, race.second.op, race.second.write) == ("add_", "resize", False)


def test_record_stream_excuses_only_the_recorded_stream(recording: SimDevice) -> None:
    x, recorded, forgotten = device_bytes(), torch.Stream(device="sim"), torch.Stream(device="sim")
    torch.accelerator.synchronize()
    for stream in (recorded, forgotten):
        with stream:
            x.sum()
    x.record_stream(recorded)
    del x
    recorded.synchronize()
    device_bytes()
    (race,) = recording.races()
    assert (race.first.stream, race.second.op) == (forgotten.stream_id, "free")


def test_a_fresh_block_belongs_to_the_stream_that_allocated_it(recording: SimDevice) -> None:
    """The allocator gave it in the order of that stream: what stood there before may still be in use on it."""
    busy = device_bytes().add_(1)
    x = torch.empty(N, dtype=torch.uint8, device="sim")
    with torch.Stream(device="sim"):
        x.zero_()
    (race,) = recording.races()
    assert (race.first.op, race.second.op) == ("allocation", "zero_")
    torch.accelerator.synchronize()
    assert busy.eq(1).all()


def test_an_idle_devices_fresh_block_belongs_to_all(recording: SimDevice) -> None:
    torch.accelerator.synchronize()
    x = torch.empty(N, dtype=torch.uint8, device="sim")
    with torch.Stream(device="sim"):
        x.zero_()
    assert recording.races() == []
    torch.accelerator.synchronize()


def test_interleaved_columns_do_not_race_and_their_rows_do(recording: SimDevice) -> None:
    table = torch.zeros(16, 16, device="sim")
    torch.accelerator.synchronize()
    with torch.Stream(device="sim"):
        table[:, ::2].add_(1)
    with torch.Stream(device="sim"):
        table[:, 1::2].add_(1)
    assert recording.races() == []
    with torch.Stream(device="sim"):
        table[3].sum()
    assert {race.second.op for race in recording.races()} == {"sum"}
    assert len(recording.races()) == 2
    torch.accelerator.synchronize()


def test_handing_a_block_over_excludes_earlier_reads(recording: SimDevice) -> None:
    """The swap engine tells of a storage that leaves: its copy only reads, but ends the program's use of the block."""

    def leave(wait: bool) -> list[str]:
        recording.reset()
        x, y = device_bytes(), device_bytes()
        torch.accelerator.synchronize()
        y.add_(x)
        core_out = torch.Stream(device="sim")
        if wait:
            core_out.wait_stream(compute())
        observe(x, core_out)
        torch.accelerator.synchronize()
        return [race.second.op for race in recording.races()]

    assert leave(wait=True) == []
    assert leave(wait=False) == ["hand-over"]


def observe(x: torch.Tensor, stream: torch.Stream) -> None:
    """Calls the observer as the swap engine does."""
    import ctypes

    from runtime.device.native import load

    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = get_pointer(load("runtime._sim").handover_observer, b"bayplan.handover")
    observer = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64)(address)
    observer(x.data_ptr(), x.nbytes, stream.stream_id)


def test_autograd_orders_streams_by_itself(recording: SimDevice) -> None:
    """Forward on a side stream that waited; the engine runs backward there and joins at its end."""
    side = torch.Stream(device="sim")
    a = torch.ones(32, 32, device="sim", requires_grad=True)
    side.wait_stream(compute())
    with side:
        b = (a @ a).relu()
    compute().wait_stream(side)
    loss = (b * 2).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    assert a.grad is not None
    assert a.grad.sum().item() == 2 * 2 * 32**3
    compute().wait_stream(side)
    side.wait_stream(compute())
    assert recording.races() == []
    del b, loss
    torch.accelerator.synchronize()
