"""The programs that ranks run: ordinary torch.distributed, of which Bayplan is no part."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from experiments.models import Batches, Gpt, GptShape
from experiments.ranks.models import Stage, build, next_byte_loss, own_seed

J = TypeVar("J")
T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """What every rank is told."""

    style: str
    shape: GptShape
    ranks: int
    steps: int
    microbatches: int


@dataclass
class Trained:
    """What a rank has after training, on the CPU: losses, the last step's gradients and the parameters, by name.

    Of a sharded tensor it is the rank's shard. A stage of a pipeline that is not the last has no losses.
    """

    losses: list[float]
    gradients: dict[str, Tensor]
    parameters: dict[str, Tensor]


def train(job: Job, rank: int, device: torch.device) -> Trained:
    """The rank's part of the training; the world must have been made."""
    model = build(job.style, job.shape).to(device)
    torch.manual_seed(own_seed(job.style, job.shape.seed, rank))
    return STYLES[job.style](job, rank, device, model)


def _ddp(job: Job, rank: int, device: torch.device, model: Gpt) -> Trained:
    wrapped = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.1)
    return _data_parallel(job, rank, device, wrapped, model)


def _fsdp2(job: Job, rank: int, device: torch.device, model: Gpt) -> Trained:
    mesh = init_device_mesh(device.type, (job.ranks,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return _data_parallel(job, rank, device, model, model)


def _data_parallel(job: Job, rank: int, device: torch.device, wrapped: nn.Module, model: Gpt) -> Trained:
    """In step s rank r sees batch s·ranks + r."""
    optimizer = _optimizer(job, model)
    batches = _batches(job)
    losses = []
    for step in range(job.steps):
        inputs, targets = (part.to(device) for part in batches[step * job.ranks + rank])
        optimizer.zero_grad()
        loss = wrapped(inputs, targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return _trained(losses, model)


def _tp(job: Job, rank: int, device: torch.device, model: Gpt) -> Trained:
    """Every rank sees the same batch; rank r holds its heads, and its part of what each block widens to."""
    mesh = init_device_mesh(device.type, (job.ranks,))
    columns = {name: ColwiseParallel() for name in ("queries", "keys", "values", "widen")}
    for block in model.blocks:
        parallelize_module(block, mesh, {**columns, "projection": RowwiseParallel(), "narrow": RowwiseParallel()})
    optimizer = _optimizer(job, model)
    batches = _batches(job)
    losses = []
    for step in range(job.steps):
        inputs, targets = (part.to(device) for part in batches[step])
        optimizer.zero_grad()
        loss = model(inputs, targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return _trained(losses, model)


def _one_f_one_b(job: Job, rank: int, device: torch.device, model: Gpt) -> Trained:
    """Microbatch m of step s is batch s·microbatches + m; the gradient is the microbatches' mean."""
    module = Stage(model, rank, job.ranks)
    shape, last = job.shape, rank == job.ranks - 1
    words = torch.empty(shape.batch, shape.context, dtype=torch.int64, device="meta")
    hidden, logits = (
        torch.empty(shape.batch, shape.context, width, device="meta", requires_grad=True)
        for width in (shape.width, 256)
    )
    # Told what they exchange, stages need not tell each other, which they could not by shapes alone.
    told, made = words if rank == 0 else hidden, logits if last else hidden
    stage = PipelineStage(module, rank, job.ranks, device, input_args=told, output_args=made)
    schedule = Schedule1F1B(stage, job.microbatches, loss_fn=next_byte_loss)
    optimizer = _optimizer(job, module)
    batches = _batches(job)
    means = []
    for step in range(job.steps):
        parts = [batches[step * job.microbatches + number] for number in range(job.microbatches)]
        inputs, targets = (torch.cat(side).to(device) for side in zip(*parts, strict=True))
        optimizer.zero_grad()
        losses: list[Tensor] = []
        given = (inputs,) if rank == 0 else ()
        if last:
            schedule.step(*given, target=targets, losses=losses)
        else:
            schedule.step(*given)
        optimizer.step()
        if losses:
            means.append(torch.stack([loss.detach() for loss in losses]).mean())
    return _trained(means, module)


def _optimizer(job: Job, model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=job.shape.learning_rate, foreach=False)


def _batches(job: Job) -> Batches:
    return Batches(job.shape.batch, job.shape.context, job.shape.seed)


def _trained(losses: list[Tensor], model: nn.Module) -> Trained:
    named = dict(model.named_parameters())
    return Trained(
        [loss.item() for loss in losses],
        {name: _local(one.grad) for name, one in named.items() if one.grad is not None},
        {name: _local(one) for name, one in named.items()},
    )


def _local(tensor: Tensor) -> Tensor:
    whole = tensor.detach()
    return (whole.to_local() if isinstance(whole, DTensor) else whole).cpu().clone()


STYLES: dict[str, Callable[[Job, int, torch.device, Gpt], Trained]] = {
    "ddp": _ddp,
    "fsdp2": _fsdp2,
    "tp": _tp,
    "1f1b": _one_f_one_b,
}


def program(train: Callable[[J, int, torch.device], T], job: J) -> Callable[[int], T]:
    """What `run_ranks` runs."""

    def ranked(rank: int) -> T:
        dist.init_process_group("sim")
        found = train(job, rank, torch.device("sim", rank))
        dist.destroy_process_group()
        return found

    return ranked
