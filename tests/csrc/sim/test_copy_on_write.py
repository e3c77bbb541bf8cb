"""Storages that share their bytes until one is written: `torch._lazy_clone`, on sim as on the CPU."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from runtime.device import SimDevice, limited_memory
from runtime.swap import session, swap_out

NUMBERS = torch.arange(4096, dtype=torch.float32)
BLOCK_BYTES = 4 * 4096


def _copied_into(tensor: Tensor) -> None:
    tensor.copy_(torch.full((4096,), 7.0))


WRITES: dict[str, Callable[[Tensor], object]] = {
    "in place": lambda tensor: tensor.add_(1),
    "through a view": lambda tensor: tensor.view(64, 64)[3].zero_(),
    "out": lambda tensor: torch.mul(tensor, 2, out=tensor),
    "indexed": lambda tensor: tensor.index_fill_(0, torch.tensor([3], device=tensor.device), -1.0),
    "foreach": lambda tensor: torch._foreach_mul_([tensor[:8], tensor[8:]], 3.0),
    "from the host": _copied_into,
    "on the device": lambda tensor: tensor.copy_(tensor.flip(0)),
    "grown": lambda tensor: tensor.untyped_storage().resize_(2 * BLOCK_BYTES),
    "random": lambda tensor: tensor.uniform_(),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("written", ["original", "clone"])
def test_a_write_reaches_only_the_tensor_that_is_written(
    sim: SimDevice, write: Callable[[Tensor], object], written: str
) -> None:
    def run(device: str) -> tuple[Tensor, Tensor]:
        torch.manual_seed(0)
        original = NUMBERS.to(device, copy=True)
        clone = torch._lazy_clone(original)
        write(original if written == "original" else clone)
        return original.cpu(), clone.cpu()

    for mine, cpus in zip(run("sim"), run("cpu"), strict=True):
        assert torch.equal(mine, cpus)


@pytest.mark.parametrize("out_before_the_clone", [True, False])
@pytest.mark.parametrize("inside_a_session", [True, False])
def test_swapped_storages_share_their_bytes(sim: SimDevice, out_before_the_clone: bool, inside_a_session: bool) -> None:
    def run() -> None:
        original = NUMBERS.to("sim")
        if out_before_the_clone:
            swap_out(original)
        clone = torch._lazy_clone(original)
        if not out_before_the_clone:
            with pytest.raises(RuntimeError, match="it shares its data copy-on-write"):
                swap_out(original)
        clone.add_(1)
        assert torch.equal(original.cpu(), NUMBERS) and torch.equal(clone.cpu(), NUMBERS + 1)

    if inside_a_session:
        with session("1GiB"):
            run()
    else:
        run()


def test_only_the_first_write_of_all_but_the_last_owner_costs_memory_and_time(sim: SimDevice) -> None:
    original = NUMBERS.to("sim")
    before = torch.accelerator.memory_allocated()
    clone = torch._lazy_clone(original)
    assert torch.accelerator.memory_allocated() == before
    sim.set_tracing(True)
    clone.add_(1)
    original.add_(1)  # the last owner of these bytes
    clone.add_(1)
    copy, *adds = [record for record in sim.trace() if record.stream == 0][-4:]
    assert (copy.op, copy.kind, copy.bytes) == ("copy on write", "copy", 2 * BLOCK_BYTES)
    assert [record.op for record in adds] == ["add_", "add_", "add_"]
    assert torch.accelerator.memory_allocated() == before + BLOCK_BYTES
    assert torch.equal(clone.cpu(), NUMBERS + 2) and torch.equal(original.cpu(), NUMBERS + 1)


def test_a_write_that_finds_no_memory_leaves_both_as_they_were(sim: SimDevice) -> None:
    original = NUMBERS.to("sim")
    clone = torch._lazy_clone(original)
    in_use = torch.accelerator.memory_allocated()
    with limited_memory(sim.device, in_use), pytest.raises(torch.OutOfMemoryError, match="16384 bytes"):
        clone.add_(1)
    assert torch.equal(original.cpu(), NUMBERS) and torch.equal(clone.cpu(), NUMBERS)
    clone.add_(1)
    assert torch.equal(original.cpu(), NUMBERS) and torch.equal(clone.cpu(), NUMBERS + 1)
    del original, clone
    assert torch.accelerator.memory_allocated() == in_use - BLOCK_BYTES


def test_the_copy_reads_what_another_stream_may_still_write(sim: SimDevice) -> None:
    original, side = NUMBERS.to("sim"), torch.Stream(device="sim")
    clone = torch._lazy_clone(original)
    with side:
        clone.add_(1)  # ordered: the host has awaited the copy to the device
    torch.accelerator.synchronize()
    filled = torch.zeros(4096, device="sim")  # queued on the default stream, which the side stream does not await
    shared = torch._lazy_clone(filled)
    with side, pytest.raises(RuntimeError, match=r"read by 'copy on write'.*is not ordered after write by 'zero_'"):
        shared.add_(1)
    assert torch.equal(original.cpu(), NUMBERS) and torch.equal(clone.cpu(), NUMBERS + 1)


@pytest.mark.parametrize("training", [True, False])
def test_statistics_that_share_their_bytes_part_when_a_batch_norm_moves_them(sim: SimDevice, training: bool) -> None:
    """The schema of `native_batch_norm` does not say that it writes them."""

    def run(device: str) -> list[Tensor]:
        mean, variance = torch.zeros(3).to(device), torch.ones(3).to(device)
        means, variances = torch._lazy_clone(mean), torch._lazy_clone(variance)
        batch = torch.arange(24.0).view(2, 3, 4).to(device)
        result = torch.nn.functional.batch_norm(batch, means, variances, training=training)
        return [each.cpu() for each in (result, mean, variance, means, variances)]

    assert all(torch.equal(mine, cpus) for mine, cpus in zip(run("sim"), run("cpu"), strict=True))


def test_a_foreign_operator_that_hides_its_write_gets_bytes_of_its_own(sim: SimDevice) -> None:
    library: Any = torch.library.Library("bayplan_tests", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define("hidden_write(Tensor counts) -> Tensor")
    library.impl("hidden_write", lambda counts: counts.add_(1).sum(), "CPU")
    original = torch.zeros(4, device="sim")
    clone = torch._lazy_clone(original)
    assert torch.ops.bayplan_tests.hidden_write(clone).item() == 4
    assert clone.tolist() == [1, 1, 1, 1] and original.tolist() == [0, 0, 0, 0]
