"""Copies move their bytes as late as the program's waits allow: who forgets one reads what was there before."""

import pytest
import torch

from runtime.device import SimDevice, use_sim
from tests.csrc.sim.conftest import ROUND

N = 4096


@pytest.fixture
def loose(sim: SimDevice) -> SimDevice:
    """Does not look for races, as a real device would not."""
    return use_sim(ROUND, races="off")


def pinned(value: int) -> torch.Tensor:
    return torch.full((N,), value, dtype=torch.uint8).pin_memory()


def on_device(value: int) -> torch.Tensor:
    tensor = torch.full((N,), value, dtype=torch.uint8, device="sim")
    torch.accelerator.synchronize()
    return tensor


def test_a_kernel_that_does_not_wait_reads_stale_bytes(loose: SimDevice) -> None:
    source, target, side = pinned(1), on_device(0), torch.Stream(device="sim")
    with side:
        target.copy_(source, non_blocking=True)
    early = target.clone()
    torch.accelerator.current_stream().wait_stream(side)
    late = target.clone()
    assert early.eq(0).all() and late.eq(1).all()


def test_a_host_that_does_not_wait_reads_stale_bytes(loose: SimDevice) -> None:
    source, target = on_device(1), pinned(0)
    target.copy_(source, non_blocking=True)
    assert target.eq(0).all()
    torch.accelerator.synchronize()
    assert target.eq(1).all()


def test_time_alone_moves_nothing_but_a_positive_query_does(loose: SimDevice) -> None:
    source, target, done = on_device(1), pinned(0), torch.Event(device="sim")
    target.copy_(source, non_blocking=True)
    done.record()
    assert not done.query() and target.eq(0).all()
    while not done.query():
        pass
    assert target.eq(1).all()


def test_a_pinned_source_that_is_overwritten_too_early_arrives_overwritten(loose: SimDevice) -> None:
    source, target = pinned(1), on_device(0)
    target.copy_(source, non_blocking=True)
    source.fill_(2)
    assert target.eq(2).all()


def test_the_streams_own_order_is_kept(loose: SimDevice) -> None:
    source, target, back = pinned(1), on_device(0), pinned(0)
    target.copy_(source, non_blocking=True)
    target.add_(1)
    back.copy_(target, non_blocking=True)
    target.zero_()
    torch.accelerator.synchronize()
    assert back.eq(2).all()


def test_waits_carry_over_through_other_streams(loose: SimDevice) -> None:
    """out → middle → compute: compute never waits for out itself."""
    source, target = pinned(1), on_device(0)
    out, middle = torch.Stream(device="sim"), torch.Stream(device="sim")
    with out:
        target.copy_(source, non_blocking=True)
    middle.wait_stream(out)
    torch.accelerator.current_stream().wait_stream(middle)
    assert target.clone().eq(1).all()


def test_pageable_memory_and_blocking_copies_move_at_once(loose: SimDevice) -> None:
    target = on_device(0)
    target.copy_(torch.ones(N, dtype=torch.uint8), non_blocking=True)
    assert loose.host_ns() >= loose.now_ns()
    back = pinned(0)
    back.copy_(target)
    assert back.eq(1).all()


def test_a_download_without_a_wait_goes_to_pinned_memory(loose: SimDevice) -> None:
    """PyTorch pins the result of a non-blocking download, so that it is late too."""
    result = on_device(1).to("cpu", non_blocking=True)
    assert result.is_pinned()
    torch.accelerator.synchronize()
    assert result.eq(1).all()


def test_copies_convert_dtype_and_layout(loose: SimDevice) -> None:
    source = torch.arange(12.0).view(3, 4).pin_memory()
    target = torch.zeros(4, 3, dtype=torch.float64, device="sim")
    target.copy_(source.t(), non_blocking=True)
    assert torch.equal(target.cpu(), source.t().double())


def test_a_block_freed_and_reused_too_early_corrupts_the_copy(loose: SimDevice) -> None:
    source, target, side = on_device(1), pinned(0), torch.Stream(device="sim")
    with side:
        target.copy_(source, non_blocking=True)
    del source
    reused = torch.full((N,), 9, dtype=torch.uint8, device="sim")
    side.synchronize()
    assert target.eq(9).all() and reused.eq(9).all()


def test_record_stream_protects_the_copy(loose: SimDevice) -> None:
    source, target, side = on_device(1), pinned(0), torch.Stream(device="sim")
    with side:
        target.copy_(source, non_blocking=True)
    source.record_stream(side)
    del source
    reused = torch.full((N,), 9, dtype=torch.uint8, device="sim")
    side.synchronize()
    assert target.eq(1).all() and reused.eq(9).all()


def test_a_copy_from_a_freed_block_outlives_its_pages(sim: SimDevice) -> None:
    """The stream waits for the copy before it frees; that pages go back to the system then is nobody's business."""
    sim.set_capacity(2 << 30)
    home, side = torch.accelerator.current_stream(), torch.Stream(device="sim")
    source, target = on_device(1), pinned(0)
    large = torch.empty(1 << 30, dtype=torch.uint8, device="sim")  # more than sim keeps of what is free
    with side:
        target.copy_(source, non_blocking=True)
    home.wait_stream(side)
    del source
    del large
    torch.accelerator.synchronize()
    assert target.eq(1).all()
