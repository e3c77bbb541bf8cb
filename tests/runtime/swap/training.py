"""A small GPT that trains with and without a session, and what both must agree on."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from experiments.models.gpt import Gpt, GptShape
from experiments.models.text import Batches
from runtime.swap.report import IterationSummary, SessionReport
from runtime.swap.session import Session, session

SHAPE = GptShape(layers=3, width=32, heads=2, context=64, batch=8, seed=3)
SHORT = 48
"""Tokens of a shorter sequence."""


class Trainer:
    """Trains on batch i at step i; `validate` and other lengths change the sequence of operators."""

    def __init__(self, device: torch.device, shape: GptShape = SHAPE) -> None:
        torch.manual_seed(shape.seed)
        self.device = device
        self.model = Gpt(shape).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, foreach=True)
        self._batches = Batches(shape.batch, shape.context, shape.seed)
        self._context = shape.context
        self._done = 0

    def step(self, *, tokens: int | None = None, skip: bool = False) -> torch.Tensor:
        """One step, perhaps on shorter sequences, perhaps without the optimizer's (as where a gradient overflowed)."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._loss(tokens)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        if not skip:
            self.optimizer.step()
        return loss.detach()

    def validate(self) -> torch.Tensor:
        """The loss on the next batch, without gradients."""
        self.model.eval()
        with torch.no_grad():
            loss = self._loss(None)
        self.model.train()
        return loss

    def _loss(self, tokens: int | None) -> torch.Tensor:
        inputs, targets = (part[:, : tokens or self._context].to(self.device) for part in self._batches[self._done])
        self._done += 1
        if tokens is None:
            loss: torch.Tensor = self.model(inputs, targets)
            return loss
        return _shorter(self.model, inputs, targets)

    def state(self) -> list[torch.Tensor]:
        """Parameters and optimizer states, on the CPU."""
        states = [value for state in self.optimizer.state.values() for value in state.values()]
        return [tensor.detach().cpu() for tensor in [*self.model.parameters(), *states]]


def _shorter(model: Gpt, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The model's loss on sequences shorter than its context."""
    hidden = model.tokens(inputs) + model.positions[: inputs.shape[1]]
    for block in model.blocks:
        hidden = block(hidden)
    return functional.cross_entropy(model.head(model.norm(hidden)).flatten(0, 1), targets.flatten())


Program = Callable[[Trainer, Session | None], list[torch.Tensor]]
"""Trains, and returns losses; the session is there to be told of boundaries, if they are given, or None."""


def steadily(steps: int) -> Program:
    """Nothing but steps."""
    return lambda trainer, _: [trainer.step() for _ in range(steps)]


@dataclass(frozen=True)
class Ran:
    """What a program left behind, the most memory that it took, and what the session says, if there was one."""

    losses: list[torch.Tensor]
    state: list[torch.Tensor]
    peak_bytes: int
    report: SessionReport | None
    iterations: list[IterationSummary]

    def equals(self, other: "Ran") -> bool:
        """Whether every bit is the same."""
        pairs = [*zip(self.losses, other.losses, strict=True), *zip(self.state, other.state, strict=True)]
        return all(torch.equal(mine, theirs) for mine, theirs in pairs)


def run(
    program: Program, device: torch.device, budget: int | str | None = None, shape: GptShape = SHAPE, **options: Any
) -> Ran:
    """Train from the start, within a budget if one is given; options are the session's."""
    trainer = Trainer(device, shape)
    torch.manual_seed(5)
    iterations: list[IterationSummary] = []
    torch.accelerator.reset_peak_memory_stats(device)
    limited = budget is not None
    within = session(budget, device=device, watch=iterations.append, **options) if limited else nullcontext(None)
    with within as following:
        losses = [loss.cpu() for loss in program(trainer, following)]
        peak_bytes = torch.accelerator.max_memory_allocated(device)
        report = None if following is None else following.report()
    return Ran(losses, trainer.state(), peak_bytes, report, iterations)
