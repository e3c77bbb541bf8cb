"""Tapes on ranks: collectives inside and around regions, by Megatron's Functions, DTensor, DDP and FSDP2."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from runtime.device.native import core
from runtime.recompute.tape import EVERYTHING, NOTHING, StorePolicy, record
from tests.runtime.ranks.cluster import run
from tests.runtime.recompute.regions import backward, gradient, same

pytestmark = pytest.mark.usefixtures("plain_sim")
Program = Callable[[int, torch.device, StorePolicy | None], list[Any]]


def region(device: torch.device, policy: StorePolicy | None) -> Any:
    """A tape, or none."""
    return nullcontext() if policy is None else record(device, policy)


class AllReduced(torch.autograd.Function):
    """Megatron's `g`: reduces in place forward, nothing backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """The sum over all ranks."""
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """As it came."""
        return grad


class Copied(torch.autograd.Function):
    """Megatron's `f`: nothing forward, reduces backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """As it came."""
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """The sum over all ranks."""
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad


def megatron(rank: int, device: torch.device, policy: StorePolicy | None) -> list[Any]:
    """Column-parallel, then row-parallel, by hand."""
    torch.manual_seed(rank)
    up, down = nn.Linear(8, 6).to(device), nn.Linear(6, 8, bias=False).to(device)
    torch.manual_seed(5)
    x = torch.randn(4, 8).to(device).requires_grad_()
    seen = []
    for _ in range(2):
        with region(device, policy):
            hidden = F.gelu(up(Copied.apply(x.exp())))  # type: ignore[no-untyped-call]
            parts = down(F.dropout(hidden, 0.2))
            early = parts.sigmoid()
            reduced = AllReduced.apply(parts)  # type: ignore[no-untyped-call]
            y = reduced.tanh().sin() * early.detach().cos().exp()
        seen.append(y.detach().clone())
        backward(y.sum())
    return [*seen, *(p.grad for p in (x, *up.parameters(), *down.parameters()))]


class Mlp(nn.Module):
    """Two layers with a normalization and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Added to what came in."""
        added: Tensor = self.down(F.gelu(self.up(self.norm(x)))).tanh()
        return x + added


class Taped(nn.Module):
    """Two blocks, each a region."""

    def __init__(self, device: torch.device, policy: StorePolicy | None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Mlp() for _ in range(2))
        self.device, self.policy = device, policy

    def forward(self, x: Tensor) -> Tensor:
        """One after the other."""
        for block in self.blocks:
            with region(self.device, self.policy):
                x = block(x)
        return x


def tensor_parallel(rank: int, device: torch.device, policy: StorePolicy | None) -> list[Any]:
    """DTensor's styles on an ordinary module."""
    torch.manual_seed(0)
    module = Mlp().to(device)
    mesh = init_device_mesh("sim", (dist.get_world_size(),))
    parallelize_module(module, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    x = torch.randn(4, 8).to(device).requires_grad_()
    with region(device, policy):
        y = module(x)
        y = y.sin() * y
    backward(y.sum())
    gradients: list[Any] = [p.grad for p in module.parameters()]
    return [y.detach(), gradient(x), *(g.to_local() if hasattr(g, "to_local") else g for g in gradients)]


def sequence_parallel(rank: int, device: torch.device, policy: StorePolicy | None) -> list[Any]:
    """Each rank has its part of the sequence, but for the matrix products: gathered before, scattered after."""
    torch.manual_seed(0)
    module = Mlp().to(device)
    mesh = init_device_mesh("sim", (dist.get_world_size(),))
    styles = {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1)),
    }
    parallelize_module(module, mesh, styles)
    torch.manual_seed(rank)
    x = torch.randn(2, 3, 8).to(device).requires_grad_()
    with region(device, policy) as tape:
        y = F.dropout(module(x), 0.2)
        y = y.sin() * y
    if tape is not None:
        names = [node.name for node in tape.nodes]
        assert any("all_gather" in name for name in names) and any("reduce_scatter" in name for name in names)
    backward(y.sum())
    gradients: list[Any] = [p.grad for p in module.parameters()]
    return [y.detach(), gradient(x), *(g.to_local() if hasattr(g, "to_local") else g for g in gradients)]


def sharded(rank: int, device: torch.device, policy: StorePolicy | None) -> list[Any]:
    """FSDP2, a region around each block: parameters are gathered and let go inside it."""
    torch.manual_seed(0)
    module = Taped(device, policy).to(device)
    mesh = init_device_mesh("sim", (dist.get_world_size(),))
    for block in module.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(module, mesh=mesh)
    torch.manual_seed(rank)
    x = torch.randn(4, 8).to(device).requires_grad_()
    y = module(x)
    backward(y.square().sum())
    return [y.detach(), gradient(x), *(gradient(p).to_local() for p in module.parameters())]  # type: ignore[attr-defined]


def data_parallel(rank: int, device: torch.device, policy: StorePolicy | None) -> list[Any]:
    """DDP around blocks that are regions."""
    torch.manual_seed(0)
    module = DistributedDataParallel(Taped(device, policy).to(device))
    torch.manual_seed(rank)
    x = torch.randn(4, 8).to(device).requires_grad_()
    y = module(x)
    backward(y.square().sum())
    return [y.detach(), gradient(x), *(p.grad for p in module.parameters())]


PROGRAMS: dict[str, Program] = {
    "megatron": megatron,
    "dtensor": tensor_parallel,
    "sequence": sequence_parallel,
    "fsdp2": sharded,
    "ddp": data_parallel,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_ranks_leave_the_same_behind_with_tapes(name: str) -> None:
    def on_ranks(policy: StorePolicy | None) -> list[list[Tensor]]:
        def program(rank: int, device: torch.device) -> list[Tensor]:
            return [tensor.detach().cpu() for tensor in PROGRAMS[name](rank, device, policy)]

        return run(program, 2, races="raise").values

    plain = on_ranks(None)
    for policy in (EVERYTHING, NOTHING, StorePolicy(others=False, store=[0] * 1000)):
        for theirs, ours in zip(plain, on_ranks(policy), strict=True):
            assert [same(*pair) for pair in zip(theirs, ours, strict=True)] == [True] * len(theirs)


def test_waits_of_a_device_run_what_is_planned_for_them() -> None:
    """TP2: the first block's operators run again beside the second block's collectives in the backward pass."""

    def program(rank: int, device: torch.device) -> tuple[list[Tensor], list[int]]:
        torch.manual_seed(0)
        module = nn.Sequential(Mlp(), Mlp()).to(device)
        mesh = init_device_mesh("sim", (dist.get_world_size(),))
        styles = {f"{n}.{part}": style() for n in (0, 1) for part, style in STYLES.items()}
        parallelize_module(module, mesh, styles)
        found, counts = [], []
        for planned in (False, True):
            x = torch.randn(4, 8, generator=torch.Generator().manual_seed(3)).to(device).requires_grad_()
            tapes, hidden = [], x
            for block in module:
                with record(device, StorePolicy(others=False)) as tape:
                    hidden = block(hidden)
                tapes.append(tape)
            windows = core.Windows(device, False)
            if planned:
                local = [index for index, node in enumerate(tapes[0].nodes) if not node.communicates]
                windows.plan([[(tapes[0], local)]])
                windows.watch()
            try:
                backward(hidden.square().sum())
            finally:
                windows.stop()
            found.append(gradient(x).cpu())
            counts += [windows.opened, tapes[0].replayed_ahead, tapes[0].replayed_on_demand]
        return found, counts

    for found, counts in run(program, 2, races="raise").values:
        assert same(*found)
        opened, ahead, demand = counts[:3]
        assert (opened, ahead) == (0, 0) and demand > 0
        opened, ahead, later = counts[3:]
        assert opened > 0 and ahead > 0 and later < demand


STYLES = {"up": ColwiseParallel, "down": RowwiseParallel}


def test_what_dtensor_calls_is_recorded_operator_by_operator() -> None:
    """PyTorch leaves the recorder's place in the dispatcher out while a subclass takes an operator apart."""

    def program(rank: int, device: torch.device) -> list[str]:
        mesh = init_device_mesh(device.type, (2,))
        x = distribute_tensor(torch.ones(4, 8, device=device), mesh, [Replicate()]).requires_grad_()
        weight = distribute_tensor(torch.ones(6, 8, device=device), mesh, [Shard(0)]).requires_grad_()
        with record(device, NOTHING) as tape:
            y: Any = F.dropout(F.linear(x, weight).cos(), 0.5)
        assert y.to_local().shape == (4, 3)
        return [node.name for node in tape.nodes]

    assert run(program, 2).values == [["aten::mm", "aten::cos", "aten::native_dropout"]] * 2
