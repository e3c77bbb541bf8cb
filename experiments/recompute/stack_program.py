"""What the devices of a pipeline stage run: Megatron's layers as they are, in the order of 1F1B, under a `Walk` or not.

One stage stands alone: what comes from its neighbours is there when it is wanted. Without stalls its time is that of
its lane: passes, collectives, and recomputation on the critical path.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from experiments.models.rank import Rank
from experiments.ranks.megatron import ParallelStage, split_cross_entropy
from experiments.recompute.step_log import Recorder, StepLog
from runtime.device.native import core
from runtime.recompute.counts import Counts
from runtime.recompute.policy import BlockPolicy
from runtime.recompute.walk import Walk
from solvers.ir.hardware import Hardware
from solvers.workload import ModelShape, Parallelism, inflight
from solvers.workload.stage import BYTES_PER_PARAMETER


@dataclass(frozen=True)
class Stack:
    """A stage of a model on a cluster: its layers, cut over `cut.tensor` devices, with all that a step brings.

    A step is `cut.microbatches` microbatches, so many of them ahead of their backward passes as 1F1B has there.
    """

    shape: ModelShape
    cut: Parallelism
    stage: int
    machine: Hardware
    dtype: torch.dtype = torch.bfloat16
    shapes_only: bool = True

    @property
    def rank(self) -> Rank:
        """One of its devices."""
        return Rank(shape=self.shape, cut=self.cut, stage=self.stage, dtype=self.dtype)

    @property
    def inflight(self) -> int:
        """Forward passes before the first backward pass."""
        return inflight(self.cut, self.stage)


@dataclass(frozen=True)
class Job:
    """What every device is told: `policies` by layer, None: no tape at all; `measured`: a further step is measured."""

    stack: Stack
    steps: int = 1
    policies: tuple[BlockPolicy, ...] | None = None
    measured: bool = False


@dataclass
class Done:
    """What a device did, by step: virtual microseconds, the most bytes, and digests of its bits where it has any."""

    step_us: list[float] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    counts: Counts | None = None
    log: StepLog | None = None


def program(job: Job) -> Callable[[int], Done]:
    """What each rank runs."""

    def train(number: int) -> Done:
        dist.init_process_group("sim")
        try:
            return _Training(job, torch.device("sim", number)).run()
        finally:
            dist.destroy_process_group()

    return train


class _Training:
    """One device's part of the stage in training."""

    def __init__(self, job: Job, device: torch.device) -> None:
        self._job, self._device, self._found = job, device, Done()
        stack = job.stack
        self._group = dist.distributed_c10d._get_default_group()
        torch.manual_seed(0)
        self._module = ParallelStage(stack.rank, device, self._group)
        parameters = list(self._module.parameters())
        for parameter in parameters:  # gradients that stay, as Megatron-LM's do
            parameter.grad = torch.zeros_like(parameter)
        count = sum(parameter.numel() for parameter in parameters)
        # The optimizer's step is left out, its states are not: they take the room that the formulas count.
        size = torch.empty((), dtype=stack.dtype).element_size()
        self._states = torch.empty(count * (BYTES_PER_PARAMETER - 2 * size), dtype=torch.uint8, device=device)
        self._words = self._tokens(stack)

    def _tokens(self, stack: Stack) -> Tensor:
        size = (1, stack.shape.sequence, stack.cut.microbatch)
        drawn = torch.randint(stack.shape.vocab, size, generator=torch.Generator().manual_seed(1))
        return drawn.to(self._device)

    def run(self) -> Done:
        """The steps, and one more that is measured where that is asked for."""
        job, blocks = self._job, list(self._module.layers)
        if job.policies is None:
            for _ in range(job.steps):
                self._step()
        elif job.measured:
            self._measured(blocks, job.policies)
        else:
            with Walk(blocks, self._device, job.policies) as walk:
                for _ in range(job.steps):
                    self._step()
            self._found.counts = walk.counts
        return self._found

    def _measured(self, blocks: Sequence[nn.Module], policies: Sequence[BlockPolicy]) -> None:
        recorder = Recorder(self._device)
        with Walk(blocks, self._device, policies, timed=True, watch=recorder.used) as walk:
            with recorder.follows(walk):
                self._step()
            self._found.log = recorder.log(walk, self._found.step_us[-1])

    def _step(self) -> None:
        for parameter in self._module.parameters():
            assert parameter.grad is not None
            parameter.grad.zero_()
        dist.barrier()
        torch.accelerator.synchronize()
        torch.accelerator.reset_peak_memory_stats(self._device)
        clock = core.Windows(self._device, True)
        clock.mark()
        results = self._passes()
        torch.accelerator.synchronize()
        self._found.step_us.append(clock.at_us(clock.mark()))
        self._found.peak_bytes.append(torch.accelerator.max_memory_allocated(self._device))
        if not self._job.stack.shapes_only:
            self._found.digests.append(self._digest(results))

    def _passes(self) -> list[Tensor]:
        """Forward passes run ahead of backward ones, the oldest of which comes first. Gives the last one's results."""
        waiting: deque[tuple[Tensor, Tensor]] = deque()
        left: list[Tensor] = []
        for _ in range(self._job.stack.cut.microbatches):
            waiting.append(self._forward())
            if len(waiting) == self._job.stack.inflight:
                left = self._backward(*waiting.popleft())
        while waiting:
            left = self._backward(*waiting.popleft())
        return left

    def _forward(self) -> tuple[Tensor, Tensor]:
        """What came in, and what goes to the next stage, or the loss."""
        rank, shape, cut = self._job.stack.rank, self._job.stack.shape, self._job.stack.cut
        given = self._words
        if not rank.first:
            size = (shape.sequence, cut.microbatch, shape.hidden)
            given = torch.ones(size, dtype=rank.dtype, device=self._device).requires_grad_()
        made: Tensor = self._module(given)
        if rank.last:
            made = split_cross_entropy(made, self._words.squeeze(0), self._group)
        return given, made

    def _backward(self, given: Tensor, made: Tensor) -> list[Tensor]:
        """Backwards; the output and the gradient of the input, where it has one."""
        made.backward(None if self._job.stack.rank.last else torch.ones_like(made))  # type: ignore[no-untyped-call]
        return [made.detach(), *([] if given.grad is None else [given.grad])]

    def _digest(self, results: Sequence[Tensor]) -> str:
        """Of the bytes of results, gradients and the generators' states."""
        told = hashlib.blake2b(digest_size=16)
        gradients: list[Any] = [parameter.grad for parameter in self._module.parameters()]
        own = torch.get_device_module("sim").get_rng_state(self._device)
        for tensor in (*results, *gradients, own, torch.get_rng_state()):
            told.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        return told.hexdigest()
