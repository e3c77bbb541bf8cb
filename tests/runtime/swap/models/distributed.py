"""Training inside DDP and FSDP2, in a process group of one rank: all that one simulated accelerator can be part of.

The group is PyTorch's own group for tests, made known to sim: its collectives pass the dispatcher as NCCL's do; with
one rank they are exact. Groups of several processes cannot be had on sim (gloo: "unsupported device type").
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C import _distributed_c10d as c10d
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.futures import Future

from tests.runtime.swap.models.networks import Layers, tokens, trained_on
from tests.runtime.swap.models.program import Build

BACKEND = "one_rank"


class Answering(dist.ProcessGroup):
    """The group of one rank as DDP needs it: the reducer wants the tensors back, which the inner group withholds."""

    def __init__(self, inner: dist.ProcessGroup) -> None:
        super().__init__(0, 1)  # type: ignore[call-arg]
        self.inner = inner

    def getBackendName(self) -> str:
        return BACKEND

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:  # type: ignore[override]
        return _done(tensors, self.inner.allreduce(tensors, opts or c10d.AllreduceOptions()))

    def broadcast(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:  # type: ignore[override]
        return _done(tensors, self.inner.broadcast(tensors, opts or c10d.BroadcastOptions()))

    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None) -> Any:  # type: ignore[override]
        return _done(outputs, self.inner.allgather(outputs, inputs, opts or c10d.AllgatherOptions()))


def _done(value: object, work: dist.Work) -> Any:
    work.wait()
    future: Future[object] = Future()
    future.set_result(value)
    return c10d._create_work_from_future(future)  # type: ignore[attr-defined]


def _group(common: Any, options: Any) -> Any:
    return c10d.FakeProcessGroup._create_internal(common.group_rank, common.group_size, options)  # type: ignore[call-arg]


@contextmanager
def one_rank() -> Iterator[None]:
    """This process is a group of its own."""
    if not hasattr(dist.Backend, BACKEND.upper()):
        dist.Backend.register_backend(BACKEND, _group, extended_api=True, devices=["cpu", "cuda", "sim"])
    dist.init_process_group(BACKEND, store=c10d.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


class Wrapped(nn.Module):
    """Layers that are wrapped when they come to their device, as launch scripts do."""

    def __init__(self, wrap: Callable[[nn.Module], nn.Module]) -> None:
        super().__init__()
        self.inner: nn.Module = Layers(4)
        self.wrap = wrap

    def to(self, *args: Any, **kwargs: Any) -> "Wrapped":
        super().to(*args, **kwargs)
        self.inner = self.wrap(self.inner)
        return self

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits of each token."""
        logits: torch.Tensor = self.inner(tokens)
        return logits


def _answering() -> Answering:
    group = dist.group.WORLD
    assert group is not None
    return Answering(group)


def ddp(module: nn.Module) -> nn.Module:
    """Replicated; gradients are copied to buckets that are reduced while the backward pass runs."""
    return nn.parallel.DistributedDataParallel(module, process_group=_answering(), bucket_cap_mb=1)


def ddp_with_views(module: nn.Module) -> nn.Module:
    """Replicated; gradients live in the buckets."""
    return nn.parallel.DistributedDataParallel(
        module, process_group=_answering(), bucket_cap_mb=1, gradient_as_bucket_view=True
    )


def fsdp2(module: nn.Module) -> nn.Module:
    """Sharded; storages of gathered parameters are resized to zero and back."""
    mesh = init_device_mesh(next(module.parameters()).device.type, (1,))
    for block in module.blocks:  # type: ignore[union-attr]
        fully_shard(block, mesh=mesh, mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float32))
    fully_shard(module, mesh=mesh)
    return module


DISTRIBUTED: dict[str, Build] = {
    "ddp": trained_on(lambda: Wrapped(ddp), tokens),
    "ddp-bucket-views": trained_on(lambda: Wrapped(ddp_with_views), tokens),
    "fsdp2": trained_on(lambda: Wrapped(fsdp2), tokens),
}
