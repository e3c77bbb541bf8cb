"""Nothing waits under the lock of a device's allocator, nor for a thread that may wait for the store.

One test for each way in which it once did; each wait is counted by the engine, and by the simulated device, which asks
with its lock held, as CUDA's allocator does. `tests.runtime.swap` looks at the same counts after all of its tests.
"""

import ctypes
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from runtime.device import CachingAllocator, use_sim
from runtime.device.native import core, load
from runtime.swap import ensure_in, is_swapped_out, session, swap_out
from tests.forbidden_waits import forbidden_waits, none_forbidden

MIB = 1 << 20
EITHER = pytest.mark.parametrize("expandable", [False, True], ids=["segments", "pages"])


def blocks(count: int, device: torch.device, mib: int = 4) -> list[torch.Tensor]:
    """Tensors of so many MiB, each with numbers of its own, which an operator has seen."""
    made = [torch.full((mib * MIB // 4,), float(number), device=device) for number in range(count)]
    for tensor in made:
        tensor.mul_(2.0)
    return made


def are_whole(tensors: list[torch.Tensor]) -> bool:
    return all(tensor.cpu().eq(2.0 * number).all() for number, tensor in enumerate(tensors))


def gained(before: dict[str, int]) -> dict[str, int]:
    return {name: count - before[name] for name, count in core.relief_counts().items()}


@pytest.fixture
def segments(device: torch.device) -> Iterator[None]:
    """Afterwards the device is as by default."""
    yield
    use_sim()


# ---- page-locking ----------------------------------------------------------------------------------------------------


@EITHER
def test_room_on_the_host_is_there_before_an_allocator_asks(
    device: torch.device, segments: None, expandable: bool
) -> None:
    """`torch.empty` is no operator that the session makes room for before it begins: only the callback helps."""
    use_sim(allocator=CachingAllocator(expandable_segments=expandable))
    with none_forbidden(), session(100 * MIB, device=device, boundaries="given"):
        tensors, before, taken = blocks(16, device), core.relief_counts(), []
        for _ in range(6):
            taken += [torch.empty(4 * MIB, dtype=torch.uint8, device=device) for _ in range(2)]
        assert gained(before)["under_lock"] > gained(before)["unlocked"] == 0
        assert sum(map(is_swapped_out, tensors)) > 0
        taken.clear()
        assert are_whole(tensors)


@EITHER
def test_without_room_on_the_host_a_request_is_refused_and_nothing_is_page_locked(
    device: torch.device, segments: None, expandable: bool
) -> None:
    use_sim(allocator=CachingAllocator(expandable_segments=expandable))
    with none_forbidden(), session(100 * MIB, device=device, boundaries="given", host_limit_bytes=0):
        tensors, before, taken = blocks(12, device), core.relief_counts(), []
        with pytest.raises(torch.OutOfMemoryError):
            taken += [torch.empty(4 * MIB, dtype=torch.uint8, device=device) for _ in range(16)]
        assert gained(before)["unlocked"] == gained(before)["refused"] > 0
        assert core.host_stats().held_bytes == 0
        taken.clear()
        assert are_whole(tensors)


def test_what_leaves_under_the_lock_is_made_up_for_before_the_next_operator(device: torch.device) -> None:
    """The room that it took is page-locked anew there, and so much more as was refused."""
    with none_forbidden(), session(10 * MIB + MIB // 2, device=device, boundaries="given"):
        tensors = blocks(10, device, mib=1)
        core.answer_under_lock()  # refused: no memory is page-locked yet
        torch.ones(4, device=device).add_(1.0)
        more = blocks(1, device, mib=1)
        assert core.answer_under_lock()
        tensors[0].add_(0.0)
        stats = core.host_stats()
        assert stats.held_bytes - stats.used_bytes >= MIB
        assert are_whole(tensors) and are_whole(more)


# ---- giving page-locked memory back ----------------------------------------------------------------------------------


def test_page_locked_memory_is_given_back_later(device: torch.device) -> None:
    """A storage that dies leaves far too much idle: its bytes go before the next operator, not under the lock."""
    dying = torch.ones(1024, device=device)
    core.reserve_host(64 * MIB, device)
    swap_out(dying)
    core.trim_host()  # forgets what was reserved; the arena stays, as it is in use
    core.hold_without_waits(True)
    try:
        with none_forbidden():
            del dying
    finally:
        core.hold_without_waits(False)
    assert core.host_stats().held_bytes == 64 * MIB
    with session(64 * MIB, device=device, boundaries="given"):
        torch.ones(4, device=device).add_(1.0)
        assert core.host_stats().held_bytes == 0


def test_a_wait_under_the_lock_would_be_counted(device: torch.device) -> None:
    """By the engine alone: the device knows nothing of `hold_without_waits`."""
    away = torch.ones(1024, device=device)
    swap_out(away)
    before = forbidden_waits()
    core.hold_without_waits(True)
    try:
        ensure_in(away)  # for users on any stream, so the host waits for the copy
    finally:
        core.hold_without_waits(False)
    after = forbidden_waits()
    core.trim_host()
    assert after["waits_under_lock"] == before["waits_under_lock"] + 1
    assert after["waits_in_callback"] == before["waits_in_callback"]


def test_the_device_tells_of_waits_in_its_callback(device: torch.device, segments: None) -> None:
    """Whoever is asked: here a callback that waits for the device."""
    use_sim(allocator="caching")
    before = forbidden_waits()

    def waits() -> bool:
        torch.accelerator.synchronize()
        return False

    with asked_by_the_device(waits):
        torch.empty(24 * MIB, dtype=torch.uint8, device=device)
    after = forbidden_waits()
    assert after["waits_in_callback"] > before["waits_in_callback"]
    assert after["waits_under_lock"] == before["waits_under_lock"]


# ---- the allocator's cache -------------------------------------------------------------------------------------------


def test_the_cache_is_not_emptied_under_the_lock(device: torch.device, segments: None) -> None:
    """In pages, and without an arena: as many free ones count as the last look has found."""
    use_sim(allocator=CachingAllocator(expandable_segments=True, max_split_size_bytes=32 * MIB))
    with session(48 * MIB, device=device, boundaries="given"):
        tensors = blocks(4, device)
        torch.empty(2 * MIB, dtype=torch.uint8, device=device)
        before, counted = torch.accelerator.memory_stats(), core.relief_counts()
        with none_forbidden():
            core.answer_under_lock()
        after = torch.accelerator.memory_stats()
        assert gained(counted)["under_lock"] == 1
        for name in ("num_sync_all_streams", "num_device_free"):
            assert after[name] == before[name]
        assert are_whole(tensors)


# ---- threads ---------------------------------------------------------------------------------------------------------

inside, may_leave = threading.Event(), threading.Event()
ends: list[str] = []


@torch.library.custom_op("bayplan_tests::stay_inside", mutates_args=())
def stay_inside(tensor: torch.Tensor) -> torch.Tensor:
    """An operator that does not end before it is let go."""
    inside.set()
    may_leave.wait(60)
    return tensor.clone()


@torch.library.custom_op("bayplan_tests::end_soon", mutates_args=())
def end_soon(tensor: torch.Tensor) -> torch.Tensor:
    """An operator that ends soon after `inside` is seen."""
    inside.set()
    time.sleep(0.2)
    ends.append("operator")
    return tensor.clone()


def test_nobody_waits_for_a_thread_that_may_wait_for_the_store(device: torch.device) -> None:
    """One that never ends its operator is waited for once, with the store free; what was short stays short."""
    inside.clear()
    may_leave.clear()
    with none_forbidden(), session(10 * MIB + MIB // 2, device=device, boundaries="given"):
        tensors = blocks(10, device, mib=1)
        own = torch.ones(16, device=device)
        other = threading.Thread(target=lambda: stay_inside(own))
        other.start()
        assert inside.wait(60)
        before = core.relief_counts()
        core.answer_under_lock()
        torch.ones(4, device=device).add_(1.0)
        assert (gained(before)["caught_up"], gained(before)["waits"]) == (1, 1)
        assert gained(before)["waits_with_store"] == 0
        assert not any(map(is_swapped_out, tensors))
        may_leave.set()
        other.join()
        assert are_whole(tensors)


def test_who_waits_for_another_thread_does_not_keep_python_from_it(device: torch.device) -> None:
    """`torch.tensor` makes its tensor with the GIL held, and the other thread's operator needs it to end."""
    inside.clear()
    ends.clear()
    with none_forbidden(), session(10 * MIB + MIB // 2, device=device, boundaries="given"):
        tensors = blocks(10, device, mib=1)
        own = torch.ones(16, device=device)
        other = threading.Thread(target=lambda: end_soon(own))
        other.start()
        assert inside.wait(60)
        before = core.relief_counts()
        core.answer_under_lock()
        torch.tensor([1.0])
        ends.append("waiting")
        other.join()
        assert gained(before)["waits"] == 1
        assert ends == ["operator", "waiting"]
        torch.ones(4, device=device).add_(1.0)
        assert any(map(is_swapped_out, tensors))
        assert are_whole(tensors)


HOLDING = """
import ctypes, threading, torch
from pathlib import Path
from runtime.device import use_sim
from runtime.device.native import core
from runtime.swap import is_swapped_out, session

libtorch = ctypes.PyDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))  # calls hold the GIL
inside, may_leave, over = threading.Event(), threading.Event(), threading.Event()

@torch.library.custom_op("bayplan_tests::stay_for_long", mutates_args=())
def stay_for_long(tensor: torch.Tensor) -> torch.Tensor:
    inside.set()
    may_leave.wait(60)
    return tensor.clone()

def clone(tensor):
    (handle,), made = torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors([tensor]), ctypes.c_void_p()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    libtorch.aoti_torch_clone(ctypes.c_void_p(pointer(handle, None)), ctypes.byref(made))
    libtorch.aoti_torch_delete_tensor_object(made)

def clone_all_the_time(tensor):
    while not over.is_set():
        clone(tensor)

device = use_sim().device
try:
    with session((10 << 20) + (1 << 19), device=device, boundaries="given"):
        blocks = [torch.full((1 << 18,), 1.0, device=device).mul_(2.0) for _ in range(14)]
        away = next(block for block in blocks if is_swapped_out(block))
        own, small = torch.ones(16, device=device), torch.ones(16, device=device)
        threads = [threading.Thread(target=stay_for_long, args=[own]),
                   threading.Thread(target=clone_all_the_time, args=[small])]
        for thread in threads:
            thread.start()
        inside.wait(60)
        before = core.relief_counts()["waits_with_store"]
        clone(away)
        assert core.relief_counts()["waits_with_store"] > before
        may_leave.set(), over.set()
        for thread in threads:
            thread.join()
except torch.OutOfMemoryError:
    print("refused")
"""


def test_who_waits_with_the_store_keeps_python_s_lock() -> None:
    """In mode exact, for a block that comes back: a thread with the GIL that asks for the store would never let go."""
    ended = subprocess.run([sys.executable, "-c", HOLDING], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (0, "refused\n"), ended.stderr


def test_a_thread_that_computes_a_part_of_an_operator_does_not_wait_for_it(
    device: torch.device, segments: None
) -> None:
    """Fused attention's backward pass allocates in threads of OpenMP's, which the operator itself waits for."""
    use_sim(allocator="caching")
    with several_threads(), none_forbidden(), session(100 * MIB, device=device, boundaries="given"):
        query = torch.randn(4, 4, 256, 32, device=device, requires_grad=True)
        before = core.relief_counts()
        found = scaled_dot_product_attention(query, query, query, is_causal=True)
        found.sum().backward()  # type: ignore[no-untyped-call]
        assert gained(before)["caught_up"] > gained(before)["waits"] == 0


def test_an_allocator_is_answered_while_another_thread_has_the_store(device: torch.device) -> None:
    """With a no, at once: that thread may wait for the very lock that the allocator holds."""
    leaving = torch.ones(1024, device=device)
    has_store, may_go_on = threading.Event(), threading.Event()

    def observe(_address: int, _bytes: int, _stream: int) -> None:
        has_store.set()
        may_go_on.wait(60)

    observer = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64)(observe)
    with none_forbidden(), session(64 * MIB, device=device, boundaries="given"):
        core.set_handover_observer(capsule(observer, b"bayplan.handover"))
        other = threading.Thread(target=lambda: swap_out(leaving))
        other.start()
        try:
            assert has_store.wait(60)
            before = core.relief_counts()
            assert not core.answer_under_lock()
            assert gained(before)["refused"] == 1
        finally:
            may_go_on.set()
            other.join()
            core.set_handover_observer(load("runtime._sim").handover_observer)
        ensure_in(leaving)


@contextmanager
def several_threads(count: int = 2) -> Iterator[None]:
    """Kernels of the CPU, and so of the simulated device, divide their work."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def capsule(function: Any, name: bytes) -> object:
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return make(ctypes.cast(function, ctypes.c_void_p), name, None)


@contextmanager
def asked_by_the_device(callback: Callable[[], bool]) -> Iterator[None]:
    """The simulated allocator's callback."""
    function = ctypes.CFUNCTYPE(ctypes.c_bool)(callback)
    load("runtime._sim").set_relief_callback(capsule(function, b"bayplan.relief"))
    yield
    load("runtime._sim").set_relief_callback(None)
