"""Ordinary programs that a review wrote: what they use of PyTorch belongs to a process, and must be each rank's."""

import gc

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, rand
from torch.distributed.tensor.parallel import ColwiseParallel, loss_parallel, parallelize_module

from runtime.device import use_sim
from runtime.ranks import run_ranks
from tests.runtime.ranks.cluster import CLUSTER, run

pytestmark = pytest.mark.usefixtures("plain_sim")


def test_the_group_may_be_told_its_device() -> None:
    """`device_id=` is how PyTorch's own examples begin; meshes, FSDP2 and barriers ask the group about it."""

    def program(rank: int) -> list[float]:
        device = torch.device("sim", rank)
        dist.init_process_group("sim", device_id=device)
        dist.barrier()
        mesh = init_device_mesh("sim", (2, 2), mesh_dim_names=("replicas", "shards"))
        torch.manual_seed(0)
        model = nn.Linear(5, 3).to(device)
        fully_shard(model, mesh=mesh)
        model(torch.full((2, 5), float(rank), device=device)).sum().backward()
        assert model.weight.grad is not None
        found: list[float] = model.weight.grad.full_tensor().flatten().tolist()  # type: ignore[attr-defined]
        dist.destroy_process_group()
        return found

    # Each rank's gradient is 2·rank in every place; the mean over four ranks is 3.
    assert run_ranks(program, 4, hardware=CLUSTER).values == [[3.0] * 15] * 4


def test_every_rank_enters_and_leaves_loss_parallel_by_itself() -> None:
    """It changes what DTensor does with a process's operators, and undoes it: once for each rank."""
    words = torch.arange(12) % 9

    def program(rank: int, device: torch.device) -> tuple[float, Tensor]:
        torch.manual_seed(0)
        head = nn.Linear(6, 9).to(device)
        columns = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
        parallelize_module(head, init_device_mesh("sim", (3,)), columns)
        with loss_parallel():
            loss = nn.functional.cross_entropy(head(torch.ones(12, 6, device=device)), words.to(device))
            loss.backward()  # type: ignore[no-untyped-call]
        assert head.weight.grad is not None
        return loss.full_tensor().item(), head.weight.grad.full_tensor().cpu()  # type: ignore[attr-defined]

    torch.manual_seed(0)
    whole = nn.Linear(6, 9)
    wanted = nn.functional.cross_entropy(whole(torch.ones(12, 6)), words)
    wanted.backward()  # type: ignore[no-untyped-call]
    for loss, gradient in run(program, 3).values:
        assert loss == pytest.approx(wanted.item(), abs=1e-6)
        torch.testing.assert_close(gradient, whole.weight.grad)


def test_replicas_of_a_dtensor_draw_alike() -> None:
    """Without a seed, too: ranks begin alike. Shards of one size draw the same numbers, as on CPUs."""

    def program(rank: int, device: torch.device) -> list[Tensor]:
        mesh = init_device_mesh("sim", (3,))
        ones = distribute_tensor(torch.ones(4, 4).to(device), mesh, [Replicate()])
        drawn = [nn.functional.dropout(ones, 0.5), rand(6, 2, device_mesh=mesh, placements=[Shard(0)])]
        return [one.full_tensor().cpu() for one in drawn]  # type: ignore[attr-defined]

    first, *others = run(program, 3).values
    assert 0 < int((first[0] == 0).sum()) < 16 and torch.equal(first[1][:2], first[1][2:4])
    for other in others:
        assert torch.equal(first[0], other[0]) and torch.equal(first[1], other[1])


def test_a_functional_collective_that_nobody_awaits_keeps_no_memory() -> None:
    """PyTorch lists its work until the process ends; fewer devices are possible all the same."""

    def program(rank: int, device: torch.device) -> None:
        world = dist.group.WORLD
        assert world is not None
        functional.all_reduce(torch.ones(4, device=device), "sum", world)

    run(program, 3)
    gc.collect()
    assert use_sim(devices=1).devices == 1


def test_a_mesh_may_lie_across_nodes_in_any_way() -> None:
    """Two by three ranks on nodes of four devices: groups whose members are no counterparts."""
    torch.manual_seed(1)
    whole = torch.randn(7, 11)

    def program(rank: int, device: torch.device) -> list[Tensor]:
        mesh = init_device_mesh("sim", (2, 3))
        part = distribute_tensor(whole.to(device), mesh, [Shard(0), Shard(1)])
        turned = part.redistribute(mesh, [Shard(1), Shard(0)])
        return [turned.full_tensor().cpu(), turned.redistribute(mesh, [Replicate(), Shard(0)]).full_tensor().cpu()]

    found = run(program, 6)
    assert not found.races
    assert all(torch.equal(one, whole) for value in found.values for one in value)


def test_checkpoints_draw_the_same_random_numbers_again_on_every_device() -> None:
    """Only device 0 shares the CPU's generator, whose state checkpoint always puts back."""

    def program(rank: int, device: torch.device) -> bool:
        torch.manual_seed(3 + rank)
        seen: list[torch.Tensor] = []

        def noisy(value: torch.Tensor) -> torch.Tensor:
            dropped = torch.nn.functional.dropout(value.exp(), 0.5)
            seen.append(dropped.detach().cpu())
            return dropped.square()

        value = torch.ones(64, device=device, requires_grad=True)
        torch.utils.checkpoint.checkpoint(noisy, value, use_reentrant=False).sum().backward()
        first, again = seen
        return torch.equal(first, again)

    assert run(program, 3).values == [True, True, True]
