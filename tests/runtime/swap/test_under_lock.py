"""Requests that an allocator makes with its own lock held, as CUDA's does: answered at once or not at all.

No thread is waited for and no memory page-locked there; the next operator begins by making up for what was refused.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from runtime.device.native import core
from runtime.storage.host import settle_host
from runtime.swap import is_swapped_out, session
from runtime.swap.session import Session

MIB = 1 << 20
inside, may_leave = threading.Event(), threading.Event()


@torch.library.custom_op("bayplan_tests::linger", mutates_args=())
def linger(tensor: torch.Tensor) -> torch.Tensor:
    """An operator that does not end before it is let go."""
    inside.set()
    may_leave.wait(60)
    return tensor.clone()


@contextmanager
def another_thread_in_an_operator(device: torch.device) -> Iterator[None]:
    """It holds a tensor of its own; nobody but it knows what else its operator holds."""
    inside.clear()
    may_leave.clear()
    own = torch.ones(16, device=device)
    thread = threading.Thread(target=lambda: linger(own))
    thread.start()
    assert inside.wait(60)
    try:
        yield
    finally:
        may_leave.set()
        thread.join()


def counts() -> dict[str, int]:
    return core.relief_counts()


@contextmanager
def short_of_memory(device: torch.device) -> Iterator[tuple[Session, list[torch.Tensor]]]:
    """Ten tensors of a mebibyte, and no room for an eleventh."""
    with session(10 * MIB + MIB // 2, device=device, boundaries="given") as following:
        tensors = [torch.full((MIB // 4,), float(number), device=device) for number in range(10)]
        for tensor in tensors:
            tensor.mul_(2.0)
        yield following, tensors


def out(tensors: list[torch.Tensor]) -> int:
    return sum(is_swapped_out(tensor) for tensor in tensors)


def test_nothing_is_page_locked_at_once_and_the_next_operator_makes_up_for_it(device: torch.device) -> None:
    with short_of_memory(device) as (_, tensors):
        before, allocations = counts(), core.host_stats().allocations
        assert not core.answer_under_lock()
        assert counts()["refused"] == before["refused"] + 1
        assert (out(tensors), core.host_stats().allocations) == (0, allocations)
        torch.ones(4, device=device).add_(1.0)
        assert counts()["caught_up"] == before["caught_up"] + 1
        assert out(tensors) == 1
        assert core.host_stats().allocations > allocations
        assert counts()["waits"] == before["waits"]
        assert all(torch.equal(t.cpu(), torch.full((MIB // 4,), 2.0 * n)) for n, t in enumerate(tensors))


def test_with_room_on_the_host_the_request_is_answered_at_once(device: torch.device) -> None:
    with short_of_memory(device) as (_, tensors):
        core.reserve_host(3 * MIB, device)
        before, allocations = counts(), core.host_stats().allocations
        assert core.answer_under_lock()
        assert counts()["refused"] == before["refused"]
        assert (out(tensors), core.host_stats().allocations) == (1, allocations)
        assert not core.answer_under_lock()  # nothing lacks any more, so nobody was asked
        assert counts()["under_lock"] == before["under_lock"] + 1


def test_room_for_requests_under_the_lock_is_there_again_after_a_policy_is_kept(device: torch.device) -> None:
    """What other policies have page-locked is then given back; a request that found nothing ended the training."""
    with short_of_memory(device):
        core.answer_under_lock()
        torch.ones(4, device=device).add_(1.0)
        settle_host(0, device)
        torch.ones(4, device=device).add_(1.0)
        stats = core.host_stats(device)
        assert stats.held_bytes - stats.used_bytes >= MIB
    assert core.host_stats(device).held_bytes == 0


def test_a_thread_inside_an_operator_is_not_waited_for(device: torch.device) -> None:
    """It may wait for the very lock that the caller holds; before the next operator it may not."""
    with short_of_memory(device) as (_, tensors):
        core.reserve_host(3 * MIB, device)
        before = counts()
        with another_thread_in_an_operator(device):
            assert not core.answer_under_lock()
            assert out(tensors) == 0
        assert counts()["refused"] == before["refused"] + 1
        assert counts()["waits"] == before["waits"]
        torch.ones(4, device=device).add_(1.0)
        assert out(tensors) == 1


@pytest.mark.parametrize("threads", [2])
def test_threads_that_allocate_under_a_budget_are_bounded(device: torch.device, threads: int) -> None:
    """Each asks under the lock at every tensor: the waits of all of them are at operators, one for each refusal."""
    before = counts()
    with short_of_memory(device) as (_, tensors):

        def work() -> None:
            for _ in range(50):
                core.answer_under_lock()
                torch.ones(64, device=device).mul_(3.0)

        others = [threading.Thread(target=work) for _ in range(threads)]
        for thread in others:
            thread.start()
        work()
        for thread in others:
            thread.join()
        assert all(torch.equal(t.cpu(), torch.full((MIB // 4,), 2.0 * n)) for n, t in enumerate(tensors))
    after = counts()
    assert after["waits"] - before["waits"] <= after["caught_up"] - before["caught_up"] + threads
    assert after["caught_up"] > before["caught_up"]
