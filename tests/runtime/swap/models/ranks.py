"""One rank of several, each a process with a simulated accelerator of its own: what launch scripts start.

`main` trains a program of the kind (`ddp`, `fsdp2`) without a budget and again inside a session, and writes what came
of it to the folder. gloo knows nothing of sim, so collectives go through the host: the group copies what it is given to
the CPU, and the result back.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C import _distributed_c10d as c10d
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.futures import Future
from torch.nn import functional

from runtime.device import memory_stats, reset_peak_memory, use_sim
from runtime.swap import session
from tests.runtime.swap.models.networks import CLASSES, Layers
from tests.runtime.swap.models.program import Program, record

BACKEND = "through_host"
STEPS = 8


class ThroughHost(dist.ProcessGroup):
    """gloo's collectives on copies of the tensors."""

    def __init__(self, gloo: dist.ProcessGroup, rank: int, ranks: int) -> None:
        super().__init__(rank, ranks)  # type: ignore[call-arg]
        self.gloo = gloo

    def getBackendName(self) -> str:
        return BACKEND

    @property
    def group_name(self) -> str:  # type: ignore[override]
        return str(dist.distributed_c10d._world.pg_names[self])

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:  # type: ignore[override]
        for tensor in tensors:
            copied = tensor.cpu()
            self.gloo.allreduce([copied], opts or c10d.AllreduceOptions()).wait()
            tensor.copy_(copied)
        return _done(tensors)

    def broadcast(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:  # type: ignore[override]
        for tensor in tensors:
            copied = tensor.cpu()
            self.gloo.broadcast([copied], opts or c10d.BroadcastOptions()).wait()
            tensor.copy_(copied)
        return _done(tensors)

    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None) -> Any:  # type: ignore[override]
        for into, given in zip(outputs, inputs, strict=True):
            gathered = [torch.empty_like(tensor, device="cpu") for tensor in into]
            self.gloo.allgather([gathered], [given.cpu()]).wait()
            for tensor, copied in zip(into, gathered, strict=True):
                tensor.copy_(copied)
        return _done(outputs)

    def all_gather_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Any:
        return self.allgather([list(output.view(self.size(), -1).unbind())], [given.reshape(-1)])

    def reduce_scatter_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Any:
        copied = given.cpu()
        self.gloo.allreduce([copied], c10d.AllreduceOptions()).wait()
        if opts is not None and opts.reduceOp == dist.ReduceOp.AVG:
            copied /= self.size()
        output.copy_(copied.view(self.size(), -1)[self.rank()].view_as(output))
        return _done(output)


def _done(value: object) -> Any:
    future: Future[object] = Future()
    future.set_result(value)
    return c10d._create_work_from_future(future)  # type: ignore[attr-defined]


def join(rank: int, ranks: int, folder: Path) -> dist.ProcessGroup:
    """The group of all ranks, for tensors of sim; the default group is the same one on the CPU."""

    def group(store: Any, rank: int, size: int, timeout: Any) -> dist.ProcessGroup:
        return ThroughHost(gloo, rank, size)

    store = c10d.FileStore(str(folder / "store"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    assert dist.group.WORLD is not None
    gloo: dist.ProcessGroup = dist.group.WORLD
    dist.Backend.register_backend(BACKEND, group, devices=["cpu", "sim"])
    joined = dist.new_group(backend=BACKEND)
    assert isinstance(joined, ThroughHost)
    return joined


def wrapped(kind: str, group: dist.ProcessGroup, module: Layers, device: torch.device) -> nn.Module:
    """The module as DDP or FSDP2 train it."""
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(module, process_group=group, bucket_cap_mb=1)
    mesh = DeviceMesh.from_group(group, device.type)
    for block in module.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(module, mesh=mesh)
    return module


def program(kind: str, group: dist.ProcessGroup, device: torch.device) -> Program:
    """Each rank trains on rows of its own."""
    torch.manual_seed(0)
    model = wrapped(kind, group, Layers(4).to(device), device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    rows = torch.Generator().manual_seed(group.rank())

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        batch = torch.randint(CLASSES, (512,), generator=rows).to(device)
        loss = functional.cross_entropy(model(batch), batch.roll(1))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()

    return Program(model, optimizer, step)


def trained(make: Callable[[], Program]) -> dict[str, object]:
    """What a rank is left with, in a form that files can hold."""
    trainee = make()
    losses = [trainee.step().cpu() for _ in range(STEPS)]
    left = record(trainee, losses)
    return {"losses": left.losses, "gradients": left.gradients, "kept": left.kept, "states": left.states}


def main(kind: str, ranks: int, folder: Path) -> None:
    """Train twice; write both outcomes, the peaks and the number of swaps."""
    torch.set_num_threads(1)
    device = use_sim(races="raise").device
    rank = int(os.environ["RANK"])
    group = join(rank, ranks, folder)
    reset_peak_memory(device)
    free = trained(lambda: program(kind, group, device))
    peak_bytes = memory_stats(device).peak_bytes
    budget_bytes = int(0.75 * peak_bytes)
    with session(budget=budget_bytes, device=device) as held:
        kept = trained(lambda: program(kind, group, device))
        report = held.report()
    figures = {"budget": budget_bytes, "peak": report.peak_bytes, "swaps": report.counts.swapped_out}
    torch.save({"free": free, "kept": kept, **figures}, folder / f"{rank}.pt")
    dist.destroy_process_group()
