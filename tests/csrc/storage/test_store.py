"""Storages that leave the device: who follows, who throws, who brings them back, and what happens to the memory."""

import gc
import io
import threading
from collections.abc import Callable

import pytest
import torch
from torch import nn

from runtime.device import use_sim
from runtime.device.native import core
from runtime.swap import ensure_in, is_swapped_out, swap_out
from tests.accelerators import ON_EACH

MIB = 1 << 20


def square(device: torch.device, side: int = 256) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor on the device, and the same on the CPU."""
    values = torch.arange(side * side, dtype=torch.float32).reshape(side, side) / 7
    return values.to(device), values


def in_use() -> int:
    return torch.accelerator.memory_allocated()


@ON_EACH
def test_memory_is_free_while_a_tensor_is_out_and_an_operator_brings_it_back(device: torch.device) -> None:
    before = in_use()
    tensor, expected = square(device, 512)
    swap_out(tensor)
    assert is_swapped_out(tensor)
    assert in_use() == before
    assert core.swap_guard_is_on()
    assert torch.equal((tensor + 1).cpu(), expected + 1)
    assert not is_swapped_out(tensor)
    assert in_use() == before + MIB


@ON_EACH
def test_views_follow_their_storage(device: torch.device) -> None:
    tensor, expected = square(device)
    turned, row = tensor.t(), tensor[3]
    swap_out(row)
    assert is_swapped_out(tensor)
    assert is_swapped_out(turned)
    made_while_out = turned[5:9].detach().unsqueeze(0)  # views touch no data
    assert is_swapped_out(made_while_out)
    assert torch.equal(made_while_out.cpu(), expected.t()[5:9].unsqueeze(0))
    assert torch.equal(row.cpu(), expected[3])


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a.unfold(0, 4, 2),
        lambda a: torch.view_as_complex(a.view(256, 128, 2)).conj(),
        lambda a: a.view(torch.int32),
        lambda a: a.diagonal(),
        lambda a: a.as_strided((3, 5), (1, 7), 2),
        lambda a: a.split([100, 156])[1].expand(3, 156, 256),
    ],
)
def test_every_kind_of_view_is_made_while_out(
    device: torch.device, view: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    tensor, expected = square(device)
    swap_out(tensor)
    made = view(tensor)
    assert is_swapped_out(tensor)
    assert torch.equal(made.cpu(), view(expected))


def test_reading_past_the_guard_throws_a_sentence(device: torch.device) -> None:
    tensor, _ = square(device)
    swap_out(tensor)
    for read in (tensor.data_ptr, tensor.untyped_storage().data_ptr, tensor[1].data_ptr):
        with pytest.raises(RuntimeError, match=r"storage \(262144 bytes\) is swapped out .* runtime.swap.ensure_in"):
            read()
    ensure_in(tensor)
    assert tensor.data_ptr() != 0


@ON_EACH
def test_lists_of_tensors_and_of_optional_tensors_are_guarded(device: torch.device) -> None:
    tensor, expected = square(device)
    other, index = tensor + 1, torch.tensor([3, 1, 4], device=device)
    for each in (tensor, other, index):
        swap_out(each)
    assert torch.equal(torch.cat([tensor, other]).cpu(), torch.cat([expected, expected + 1]))
    swap_out(tensor)
    assert torch.equal(tensor[index].cpu(), expected[[3, 1, 4]])
    swap_out(index)
    swap_out(other)
    tensor[:, index] = 5.0
    changed = expected.clone()
    changed[:, [3, 1, 4]] = 5.0
    swap_out(tensor)
    torch._foreach_mul_([tensor, other], 2.0)
    assert torch.equal(tensor.cpu(), changed * 2)
    assert torch.equal(other.cpu(), (expected + 1) * 2)


def test_writes_in_place_and_into_results_reach_a_tensor_that_was_out(device: torch.device) -> None:
    tensor, expected = square(device)
    swap_out(tensor)
    tensor[2].mul_(3)
    expected[2].mul_(3)
    swap_out(tensor)
    torch.add(tensor[0], 1, out=tensor[1])
    expected[1] = expected[0] + 1
    swap_out(tensor)
    assert torch.equal(tensor.cpu(), expected)
    swap_out(tensor)
    tensor.resize_(512, 256)
    assert torch.equal(tensor[:256].cpu(), expected)


def test_autograd_finds_what_it_saved(device: torch.device) -> None:
    weight, expected = square(device)
    weight.requires_grad_()
    hidden = weight * 2
    result = (hidden * hidden).sum()
    swap_out(hidden)
    swap_out(weight)
    result.backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    assert torch.equal(weight.grad.cpu(), 8 * expected)


def test_what_reads_memory_itself_needs_ensure_in(device: torch.device) -> None:
    layer = nn.Linear(16, 16).to(device)
    expected = layer.weight.detach().cpu()
    swap_out(layer.weight)
    with pytest.raises(RuntimeError, match="swapped out to the host"):
        torch.save(layer.state_dict(), io.BytesIO())
    file = io.BytesIO()
    ensure_in(layer.state_dict())
    torch.save(layer.state_dict(), file)
    file.seek(0)
    assert torch.equal(torch.load(file, map_location="cpu")["weight"], expected)


def test_ensure_in_reaches_gradients_and_optimizer_states(device: torch.device) -> None:
    layer = nn.Linear(16, 16).to(device)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(2, 16, device=device)).sum().backward()
    optimizer.step()
    state = optimizer.state[layer.weight]["exp_avg"]
    assert layer.weight.grad is not None
    swap_out(state)
    swap_out(layer.weight.grad)
    ensure_in(layer, [{"nested": optimizer}], None, 3)
    assert not is_swapped_out(state)
    assert not is_swapped_out(layer.weight.grad)


def test_a_storage_that_dies_while_out_frees_its_host_copy(device: torch.device) -> None:
    before = in_use()
    tensor, _ = square(device)
    view = tensor[1:]
    swap_out(tensor)
    assert core.host_stats().used_bytes == 256 * 256 * 4
    del tensor
    assert core.host_stats().used_bytes == 256 * 256 * 4
    del view
    gc.collect()
    assert core.host_stats().used_bytes == 0
    assert core.swapped_out_storages() == 0
    assert not core.swap_guard_is_on()
    assert in_use() == before


def test_host_blocks_are_used_again_and_trimmed(device: torch.device) -> None:
    tensor, expected = square(device)
    before = core.host_stats()
    for _ in range(5):
        swap_out(tensor)
        assert torch.equal(tensor.cpu(), expected)
    after = core.host_stats()
    assert (after.allocations - before.allocations, after.reuses - before.reuses) == (1, 4)
    assert (after.held_bytes, after.used_bytes) == (tensor.nbytes, 0)
    core.trim_host()
    assert core.host_stats().held_bytes == 0


def test_the_host_limit_is_kept_by_dropping_idle_blocks_and_then_told(device: torch.device) -> None:
    small, large = torch.ones(1000, device=device), torch.ones(2000, device=device)
    core.set_host_limit(10_000)
    swap_out(small)
    ensure_in(small)
    swap_out(large)  # 8,000 bytes fit only where the idle block of 4,000 is dropped
    assert core.host_stats().held_bytes == 8000
    with pytest.raises(
        RuntimeError, match=r"swapping 4000 more bytes .* host_limit_bytes=10000, of which 8000 are in use: raise"
    ):
        swap_out(small)
    assert not is_swapped_out(small)
    assert torch.equal(large.cpu(), torch.ones(2000))
    core.set_host_limit(None)


def test_storages_that_cannot_leave_are_refused(device: torch.device) -> None:
    tensor, _ = square(device)
    swap_out(tensor)
    with pytest.raises(RuntimeError, match="it is swapped out already"):
        swap_out(tensor[1])
    with pytest.raises(RuntimeError, match="it has no data"):
        swap_out(torch.empty(0, device=device))
    ensure_in(tensor)


def test_memory_that_is_not_the_allocator_s_is_left_alone(device: torch.device) -> None:
    tensor, expected = square(device)
    borrowed = torch._C._construct_storage_from_data_pointer(tensor.data_ptr(), device, tensor.nbytes)
    other = torch.empty(0, device=device).set_(borrowed, 0, (256, 256), (256, 1))
    with pytest.raises(RuntimeError, match="its memory is not the allocator's own"):
        swap_out(other)
    other.add_(1)
    assert torch.equal(tensor.cpu(), expected + 1)


@ON_EACH
def test_a_stream_that_knows_only_the_maker_finds_what_another_brought_back(device: torch.device) -> None:
    """The program's event is older than the copy back; races are raised on sim."""
    side, made = torch.Stream(device=device), torch.Event(device=device)
    tensor, expected = square(device)
    tensor.add_(1)
    made.record()
    swap_out(tensor)
    here = tensor * 2
    side.wait_event(made)
    with side:
        there = tensor * 3
    torch.accelerator.current_stream().wait_stream(side)
    assert torch.equal(here.cpu(), (expected + 1) * 2)
    assert torch.equal(there.cpu(), (expected + 1) * 3)


def test_a_block_fetched_on_another_stream_waits_for_it_when_freed(device: torch.device) -> None:
    side = torch.Stream(device=device)
    tensor, expected = square(device)
    host = torch.empty(256, 256, pin_memory=True)
    swap_out(tensor)
    with side:
        host.copy_(tensor, non_blocking=True)
    del tensor  # sim raises a race where the block goes back to its pool too early
    overwriting = torch.zeros(256, 256, device=device)
    side.synchronize()
    assert torch.equal(host, expected)
    assert overwriting.sum().item() == 0


def test_a_block_of_another_stream_s_pool_is_free_after_the_copy_out_only(device: torch.device) -> None:
    side = torch.Stream(device=device)
    with side:
        tensor, expected = square(device)
    torch.accelerator.synchronize()
    swap_out(tensor)
    with side:
        overwriting = torch.zeros(256, 256, device=device)
    side.synchronize()
    assert torch.equal(tensor.cpu(), expected)
    assert overwriting.sum().item() == 0


def test_a_clone_on_write_is_left_alone(device: torch.device) -> None:
    tensor, _ = square(device)
    lazy = torch._lazy_clone(tensor)
    for each in (tensor, lazy):
        with pytest.raises(RuntimeError, match="it shares its data copy-on-write"):
            swap_out(each)


def test_a_tensor_that_does_not_fit_back_says_so_and_may_come_later(device: torch.device) -> None:
    tensor, expected = square(device)
    swap_out(tensor)
    room = torch.accelerator.memory_allocated() + 100 * 1024
    sim = use_sim(capacity_bytes=room)
    with pytest.raises(RuntimeError, match=r"swapped out .* could not be brought back: .*[Oo]ut of memory"):
        tensor.add(1)
    with pytest.raises(torch.OutOfMemoryError):
        ensure_in(tensor)
    sim.set_capacity(room + MIB)
    assert torch.equal(tensor.cpu(), expected)


def test_threads_that_want_the_same_storage_all_get_it(device: torch.device) -> None:
    tensor, expected = square(device)
    wrong: list[int] = []

    def read(number: int) -> None:
        for _ in range(20):
            if not torch.equal((tensor + number).cpu(), expected + number):
                wrong.append(number)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_engine_s_own_copies_are_no_operators(device: torch.device) -> None:
    from runtime.profile.recording import light_recording

    tensor, _ = square(device)
    with light_recording() as recording:
        swap_out(tensor)
        ensure_in(tensor)
    assert recording.names() == ()
