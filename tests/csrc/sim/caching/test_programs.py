"""Programs on segments: the same numbers, races found, late copies right, and help asked for once."""

import ctypes
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.device import CachingAllocator, use_sim
from runtime.device.native import load
from tests.csrc.sim.caching.conftest import SetUp, block
from tests.csrc.sim.caching.sequences import MIB
from tests.csrc.sim.conftest import ROUND
from tests.csrc.sim.gpt import Trainer
from tests.csrc.sim.test_memory_programs import FREE, MAKE, USE, play


@pytest.mark.parametrize("expandable", [False, True])
def test_training_is_the_cpus_bit_by_bit(cached: SetUp, expandable: bool) -> None:
    reference = Trainer("cpu").run(3)
    cached(64, expandable_segments=expandable)
    ours = Trainer("sim").run(3)
    assert all(torch.equal(mine, cpus) for mine, cpus in zip(ours.losses, reference.losses, strict=True))
    assert all(torch.equal(mine, cpus) for mine, cpus in zip(ours.parameters, reference.parameters, strict=True))


@settings(max_examples=60)
@given(
    st.lists(st.one_of(MAKE, USE, FREE), min_size=3, max_size=30),
    st.integers(1, 4),
    st.booleans(),
)
def test_a_program_that_waits_is_clean_and_right_in_few_segments(
    steps: list[tuple[object, ...]], segments: int, expandable: bool
) -> None:
    """Three streams share so few segments of 2 MiB that they are refused, retried, and given from one to another."""
    use_sim(ROUND)
    capacity = torch.accelerator.memory_reserved() + segments * 2 * MIB
    options = CachingAllocator(expandable_segments=expandable)
    sim = use_sim(ROUND, capacity_bytes=capacity, races="record", allocator=options)
    play(steps, sim)
    use_sim(ROUND)


def test_reuse_of_a_block_is_a_write_on_its_stream(cached: SetUp) -> None:
    """A side stream reads what nobody says it reads; the block's stream gets it again, without a wait."""
    cached(64)
    use = use_sim(ROUND, races="record", allocator="caching")
    side, first = torch.Stream(device="sim"), block(4).fill_(1)
    side.wait_stream(torch.accelerator.current_stream())
    with side:
        read = first + 1
    address = first.data_ptr()
    del first
    second = block(4)
    assert second.data_ptr() == address and read.numel() == 4 * MIB
    (race,) = use.races()
    assert (race.first.op, race.second.op) == ("add", "free")
    torch.accelerator.synchronize()


def test_a_late_copy_out_of_a_given_back_segment_has_the_old_bytes(cached: SetUp) -> None:
    """The copy moves when something waits for it: here the driver, who takes the segment."""
    sim = cached(24)
    side, host = torch.Stream(device="sim"), torch.zeros(20 * MIB, dtype=torch.uint8, pin_memory=True)
    source = block(20).fill_(7)
    side.wait_stream(torch.accelerator.current_stream())
    with side:
        host.copy_(source, non_blocking=True)
    source.record_stream(side)
    del source
    with side:
        other = block(20).fill_(9)
    side.synchronize()
    assert host.eq(7).all() and other.cpu().eq(9).all()
    assert torch.accelerator.memory_stats()["num_alloc_retries"] == 1
    assert sim.races() == []


Callback = Callable[[], bool]


@pytest.fixture
def asks() -> Iterator[Callable[[Callback], None]]:
    """Sets who is asked."""
    keep: list[object] = []

    def answer(callback: Callback) -> None:
        function = ctypes.CFUNCTYPE(ctypes.c_bool)(callback)
        new_capsule = ctypes.pythonapi.PyCapsule_New
        new_capsule.restype, new_capsule.argtypes = (
            ctypes.py_object,
            [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
        )
        address = ctypes.cast(function, ctypes.c_void_p)
        load("runtime._sim").set_relief_callback(new_capsule(address, b"bayplan.relief", None))
        keep.append(function)

    yield answer
    load("runtime._sim").set_relief_callback(None)


def test_help_is_asked_for_once_before_anybody_knows_whether_it_is_needed(
    cached: SetUp, asks: Callable[[Callback], None]
) -> None:
    """[trigger_free_memory_callbacks] At every request that no cached block fits, full device or not."""
    cached(64)
    asked: list[int] = []

    def noted() -> bool:
        asked.append(len(asked))
        return False

    asks(noted)
    kept = [block(4), block(4)]
    assert len(asked) == 1  # the second came from the first's segment
    kept.append(block(40))
    assert len(asked) == 2
    with pytest.raises(torch.OutOfMemoryError):
        block(30)
    assert len(asked) == 3 and len(kept) == 3


def test_what_the_callback_frees_is_looked_at_before_the_driver_is_asked(
    cached: SetUp, asks: Callable[[Callback], None]
) -> None:
    cached(64)
    hoard = [block(24)]
    asks(lambda: hoard.pop() is not None)
    kept = block(24)
    stats = torch.accelerator.memory_stats()
    assert (stats["num_device_alloc"], stats["num_alloc_retries"]) == (1, 0)
    assert kept.numel() == 24 * MIB


def test_one_answer_is_all_there_is(cached: SetUp, asks: Callable[[Callback], None]) -> None:
    """Mode exact would ask again for the second block; this one refuses (fact F1)."""
    cached(64)
    hoard = [block(30), block(30)]
    asks(lambda: bool(hoard) and hoard.pop() is not None)
    with pytest.raises(torch.OutOfMemoryError):
        block(60)
    assert len(hoard) == 1
    hoard.clear()


def test_a_segment_that_was_split_under_older_rules_keeps_what_is_in_use() -> None:
    """A limit on splitting that comes later must not take a split segment for one that can go."""
    use_sim(ROUND, capacity_bytes=200 * MIB, allocator="caching")
    large = block(100)
    del large
    kept = block(5)
    use_sim(ROUND, capacity_bytes=200 * MIB, allocator=CachingAllocator(max_split_size_bytes=40 * MIB))
    kept.fill_(7)
    with pytest.raises(torch.OutOfMemoryError):
        block(120).fill_(1)
    assert kept.eq(7).all()
    del kept
    assert block(120).fill_(1)[-1].item() == 1
    use_sim(ROUND)
