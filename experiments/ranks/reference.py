"""The same training in one process on the CPU: the same shards, one after the other, summed in rank order."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments.models import Batches, Gpt
from experiments.ranks.models import Stage, build, next_byte_loss, own_seed
from experiments.ranks.programs import Job, Trained


def reference(job: Job) -> list[Trained]:
    """By rank, what it must have bit for bit."""
    if job.style == "tp":
        return _tensor_parallel(job)
    if job.style == "1f1b":
        return _pipeline(job)
    return _data_parallel(job)


class _Dice:
    """The random numbers of each rank."""

    def __init__(self, job: Job) -> None:
        self._states = []
        for rank in range(job.ranks):
            torch.manual_seed(own_seed(job.style, job.shape.seed, rank))
            self._states.append(torch.get_rng_state())

    def __call__(self, rank: int) -> "_Turn":
        return _Turn(self._states, rank)


class _Turn:
    """Within the block random numbers are one rank's."""

    def __init__(self, states: list[Tensor], rank: int) -> None:
        self._states, self._rank = states, rank

    def __enter__(self) -> None:
        torch.set_rng_state(self._states[self._rank])

    def __exit__(self, *_: object) -> None:
        self._states[self._rank] = torch.get_rng_state()


def _batches(job: Job) -> Batches:
    return Batches(job.shape.batch, job.shape.context, job.shape.seed)


def _optimizer(job: Job, model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=job.shape.learning_rate, foreach=False)


def _data_parallel(job: Job) -> list[Trained]:
    """Gradients of each rank's batch: DDP takes 1/ranks of each before it sums them, FSDP2 of the sum."""
    model, dice, batches = build(job.style, job.shape), _Dice(job), _batches(job)
    optimizer = _optimizer(job, model)
    losses: list[list[float]] = [[] for _ in range(job.ranks)]
    for step in range(job.steps):
        gradients = []
        for rank in range(job.ranks):
            model.zero_grad()
            with dice(rank):
                loss = model(*batches[step * job.ranks + rank])
            loss.backward()
            losses[rank].append(loss.item())
            gradients.append([one.grad for one in model.parameters()])
        for one, shards in zip(model.parameters(), zip(*gradients, strict=True), strict=True):
            one.grad = _mean(job, [shard for shard in shards if shard is not None])
        optimizer.step()
    return [_shards(job, rank, losses[rank], model) for rank in range(job.ranks)]


def _mean(job: Job, gradients: list[Tensor]) -> Tensor:
    parts = [one * (1 / job.ranks) for one in gradients] if job.style == "ddp" else gradients
    total = parts[0].clone()
    for part in parts[1:]:
        total = total + part
    return total if job.style == "ddp" else total / job.ranks


def _shards(job: Job, rank: int, losses: list[float], model: nn.Module) -> Trained:
    """FSDP2 gives rank r the r-th part of the rows, as `torch.chunk` cuts them; DDP gives everyone everything."""

    def part(tensor: Tensor) -> Tensor:
        if job.style == "ddp":
            return tensor.detach().clone()
        chunks = tensor.detach().chunk(job.ranks)
        return chunks[rank].clone() if rank < len(chunks) else tensor.detach()[:0].clone()

    named = dict(model.named_parameters())
    return Trained(
        losses,
        {name: part(one.grad) for name, one in named.items() if one.grad is not None},
        {name: part(one) for name, one in named.items()},
    )


def _pipeline(job: Job) -> list[Trained]:
    """Microbatch after microbatch through all stages; the gradient is their sum over their number."""
    whole, dice, batches = build(job.style, job.shape), _Dice(job), _batches(job)
    stages = [Stage(whole, rank, job.ranks) for rank in range(job.ranks)]
    optimizers = [_optimizer(job, stage) for stage in stages]
    means = []
    for step in range(job.steps):
        for optimizer in optimizers:
            optimizer.zero_grad()
        losses = []
        for number in range(job.microbatches):
            hidden, targets = batches[step * job.microbatches + number]
            for rank, stage in enumerate(stages):
                with dice(rank):
                    hidden = stage(hidden)
            loss = next_byte_loss(hidden, targets)
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        for one in whole.parameters():
            if one.grad is not None:
                one.grad.div_(job.microbatches)
        for optimizer in optimizers:
            optimizer.step()
        means.append(torch.stack(losses).mean().item())
    return [_stage(stage, means if rank == job.ranks - 1 else []) for rank, stage in enumerate(stages)]


def _stage(stage: Stage, losses: list[float]) -> Trained:
    named = dict(stage.named_parameters())
    return Trained(
        losses,
        {name: one.grad.clone() for name, one in named.items() if one.grad is not None},
        {name: one.detach().clone() for name, one in named.items()},
    )


class _Fork(torch.autograd.Function):
    """The same tensor for each rank; the gradients come back summed in rank order."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, ranks: int) -> tuple[Tensor, ...]:
        return tuple(tensor.view_as(tensor) for _ in range(ranks))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        total = gradients[0]
        for gradient in gradients[1:]:
            total = total + gradient
        return total, None


class _ByColumns(nn.Module):
    """A linear layer whose outputs are split: each rank's part is computed apart."""

    def __init__(self, layer: nn.Linear, ranks: int) -> None:
        super().__init__()
        self.weights = nn.ParameterList(part.clone() for part in layer.weight.detach().chunk(ranks))
        self.biases = nn.ParameterList(part.clone() for part in layer.bias.detach().chunk(ranks))

    def forward(self, hidden: Tensor) -> Tensor:
        inputs = _Fork.apply(hidden, len(self.weights))  # type: ignore[no-untyped-call]
        parts = zip(inputs, self.weights, self.biases, strict=True)
        return torch.cat([functional.linear(*part) for part in parts], dim=-1)


class _ByRows(nn.Module):
    """A linear layer whose inputs are split: the ranks' results are summed in rank order."""

    def __init__(self, layer: nn.Linear, ranks: int) -> None:
        super().__init__()
        self.weights = nn.ParameterList(part.clone() for part in layer.weight.detach().chunk(ranks, dim=1))

    def forward(self, hidden: Tensor) -> Tensor:
        inputs = hidden.chunk(len(self.weights), dim=-1)
        parts = [functional.linear(*part) for part in zip(inputs, self.weights, strict=True)]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total


def _tensor_parallel(job: Job) -> list[Trained]:
    model, dice, batches = build(job.style, job.shape), _Dice(job), _batches(job)
    for block in model.blocks:
        for name in ("queries", "keys", "values", "widen"):
            setattr(block, name, _ByColumns(getattr(block, name), job.ranks))
        for name in ("projection", "narrow"):
            setattr(block, name, _ByRows(getattr(block, name), job.ranks))
    optimizer = _optimizer(job, model)
    losses = []
    for step in range(job.steps):
        optimizer.zero_grad()
        with dice(0):
            loss = model(*batches[step])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [_part(model, rank, losses) for rank in range(job.ranks)]


def _part(model: Gpt, rank: int, losses: list[float]) -> Trained:
    """A rank's parts under the names that they have in the whole layer."""
    found = Trained(losses, {}, {})
    for name, one in model.named_parameters():
        stem, _, index = name.rpartition(".")
        kind = {"weights": "weight", "biases": "bias"}.get(stem.rpartition(".")[2])
        if kind is not None and int(index) != rank:
            continue
        known = name if kind is None else f"{stem.rpartition('.')[0]}.{kind}"
        found.parameters[known] = one.detach().clone()
        if one.grad is not None:
            found.gradients[known] = one.grad.clone()
    return found
