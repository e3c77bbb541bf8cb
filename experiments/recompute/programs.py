"""The program that every rank runs: ordinary tensor parallel training, under a `Walk` or without one."""

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from experiments.models import Batches, Gpt, GptShape
from experiments.ranks.models import build, own_seed
from experiments.recompute.step_log import Recorder, StepLog
from runtime.device.native import core
from runtime.recompute.counts import Counts
from runtime.recompute.policy import BlockPolicy
from runtime.recompute.walk import Walk


@dataclass(frozen=True)
class Job:
    """What every rank is told.

    A step is `microbatches` batches; `inflight` of them have had their forward pass when the oldest has its backward
    pass: 1 is plain accumulation, all of them GPipe's order. `policies` by block; None: no tape at all. `measured`:
    policies under each of which a further step is measured.
    """

    shape: GptShape
    ranks: int
    steps: int
    microbatches: int = 1
    inflight: int = 1
    precision: str = "float32"
    policies: tuple[BlockPolicy, ...] | None = None
    measured: tuple[tuple[BlockPolicy, ...], ...] = ()


@dataclass
class Trained:
    """What a rank has after training, on the CPU; tensors are the rank's shards.

    `digests` are of each step's gradients, `random` of the generators' states after each step. Bytes and virtual
    microseconds of each step. `counts` of what ran again; `logs` of measured steps.
    """

    losses: list[Tensor] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    random: list[str] = field(default_factory=list)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    parameters: dict[str, Tensor] = field(default_factory=dict)
    buffers: dict[str, Tensor] = field(default_factory=dict)
    step_us: list[float] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)
    counts: Counts | None = None
    logs: list[StepLog] = field(default_factory=list)


def keep_largest(model: Gpt) -> None:
    """Each block keeps the largest activation seen, as quantization does: a buffer that its region writes."""

    def look(module: nn.Module, given: tuple[Tensor, ...]) -> None:
        with torch.no_grad():
            largest = module.get_buffer("largest")
            largest.copy_(torch.maximum(largest, local(given[0]).abs().max()))

    for block in model.blocks:
        norm = cast(nn.Module, block.norm_mlp)
        norm.register_buffer("largest", torch.zeros((), device=model.positions.device))
        norm.register_forward_pre_hook(look)


def train(job: Job, rank: int, device: torch.device) -> Trained:
    """The rank's part of the training; the world must have been made."""
    model = build("tp", job.shape).to(device)
    keep_largest(model)
    torch.manual_seed(own_seed("tp", job.shape.seed, rank))
    if job.ranks > 1:
        _split(model, device, job.ranks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=job.shape.learning_rate, foreach=False)
    training = _Training(job, device, model, optimizer)
    if job.measured:
        return training.measured()
    blocks, policies = list(model.blocks), job.policies
    walk = nullcontext() if policies is None else Walk(blocks, device, policies)
    with walk as walking:
        for step in range(job.steps):
            training.step(step)
    if walking is not None:
        training.found.counts = walking.counts
    return training.ended()


def _split(model: Gpt, device: torch.device, ranks: int) -> None:
    mesh = init_device_mesh(device.type, (ranks,))
    columns = {name: ColwiseParallel() for name in ("queries", "keys", "values", "widen")}
    for block in model.blocks:
        parallelize_module(block, mesh, {**columns, "projection": RowwiseParallel(), "narrow": RowwiseParallel()})


@dataclass
class _Training:
    """One rank's model in training."""

    job: Job
    device: torch.device
    model: Gpt
    optimizer: torch.optim.Optimizer
    found: Trained = field(default_factory=Trained)

    def __post_init__(self) -> None:
        self._batches = Batches(self.job.shape.batch, self.job.shape.context, self.job.shape.seed)

    def measured(self) -> Trained:
        """More steps than asked: those that come last are measured, when optimizers have their states."""
        for step in range(self.job.steps):
            self.step(step)
        blocks = list(self.model.blocks)
        for number, policies in enumerate(self.job.measured):
            recorder = Recorder(self.device)
            with Walk(blocks, self.device, policies, timed=True, watch=recorder.used) as walk:
                with recorder.follows(walk):
                    self.step(self.job.steps + number)
                self.found.logs.append(recorder.log(walk, self.found.step_us[-1]))
        return self.ended()

    def step(self, number: int) -> None:
        """One step, and what is known of it."""
        job = self.job
        given = [
            tuple(part.to(self.device) for part in self._batches[number * job.microbatches + index])
            for index in range(job.microbatches)
        ]
        self.optimizer.zero_grad()
        torch.accelerator.synchronize()
        torch.accelerator.reset_peak_memory_stats(self.device)
        clock = core.Windows(self.device, True)
        clock.mark()
        losses = list(self._passes(given))
        self.optimizer.step()
        torch.accelerator.synchronize()
        self.found.step_us.append(clock.at_us(clock.mark()))
        self.found.peak_bytes.append(torch.accelerator.max_memory_allocated(self.device))
        self.found.losses.append(torch.stack([local(loss).cpu() for loss in losses]))
        self.found.digests.append(_digest([one.grad for one in self.model.parameters() if one.grad is not None]))
        own = torch.get_device_module("sim").get_rng_state(self.device)
        self.found.random.append(_digest([torch.get_rng_state(), own]))

    def _passes(self, given: Sequence[tuple[Tensor, ...]]) -> Iterator[Tensor]:
        """Forward passes run ahead of backward ones, the oldest of which comes first."""
        waiting: deque[Tensor] = deque()
        for inputs, targets in given:
            with _cast(self.job.precision):
                waiting.append(self.model(inputs, targets) / self.job.microbatches)
            if len(waiting) == self.job.inflight:
                yield _backward(waiting.popleft())
        while waiting:
            yield _backward(waiting.popleft())

    def ended(self) -> Trained:
        """The last step's gradients, the parameters and the buffers."""
        named = dict(self.model.named_parameters())
        self.found.gradients = {name: local(one.grad).cpu() for name, one in named.items() if one.grad is not None}
        self.found.parameters = {name: local(one).cpu() for name, one in named.items()}
        self.found.buffers = {name: local(one).cpu() for name, one in self.model.named_buffers()}
        return self.found


def _backward(loss: Tensor) -> Tensor:
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def _cast(precision: str) -> AbstractContextManager[object]:
    return nullcontext() if precision == "float32" else torch.autocast("sim", dtype=getattr(torch, precision))


def local(tensor: Tensor) -> Tensor:
    """What this rank has of it."""
    whole = tensor.detach()
    return whole.to_local() if isinstance(whole, DTensor) else whole


def _digest(tensors: Sequence[Tensor]) -> str:
    """Of the bytes of all of them: stricter than torch.equal, which takes 0 for −0."""
    told = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        told.update(local(tensor).cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return told.hexdigest()
