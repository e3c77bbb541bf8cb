"""How a network is trained: its optimizer, and what else a step does; the same in every run of the same seed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

from tests.runtime.execute.planned.networks import Network
from tests.runtime.swap.models.program import Build

Optimizer = Literal["sgd", "momentum", "adam", "adamw", "adamw foreach", "adamw fused", "two"]
"""`two`: momentum for one half of the parameters, AdamW for the other."""


@dataclass(frozen=True)
class Habits:
    """What a training step does beside forward, backward, step.

    `micro`: batches whose gradients are added up; `cast`: autocast to bfloat16; `scaled`: a GradScaler;
    `clipped`: the gradients' norm is; `emptied`: gradients are set to zero in place, not to None; `penalized`:
    a penalty on the last layers' slopes, so that backward goes through a
    backward; `fixed`: all batches are one, on the device from the start; `sideways`: batches
    come in on a stream of their own.
    """

    optimizer: Optimizer = "adamw"
    micro: int = 1
    cast: bool = False
    scaled: bool = False
    clipped: bool = False
    emptied: bool = False
    penalized: bool = False
    fixed: bool = False
    sideways: bool = False


@dataclass(frozen=True)
class Snapshot:
    """A training's tensors by name, on the CPU, and what else decides how it goes on."""

    values: dict[str, torch.Tensor | None]
    random: torch.Tensor
    steps: int
    scaler: dict[str, Any] = field(default_factory=dict)

    def differences(self, other: "Snapshot") -> list[str]:
        """Names of the tensors that are not equal bit by bit, or stand on one side only."""
        names = {**self.values, **other.values}
        return [name for name in names if not _same(self.values.get(name), other.values.get(name))]


class Trained:
    """Something that trains step after step, and can be set back by a step if it is `repeatable`."""

    repeatable = True
    model: nn.Module
    optimizers: list[torch.optim.Optimizer]
    scaler: torch.amp.GradScaler | None = None
    steps = 0

    def step(self) -> torch.Tensor:
        """Train once; the losses."""
        raise NotImplementedError

    def named(self) -> Iterator[tuple[str, torch.Tensor | None]]:
        """Parameters, gradients, buffers, and the optimizers' states."""
        for name, parameter in self.model.named_parameters():
            yield f"parameter {name}", parameter
            yield f"gradient {name}", parameter.grad
        for name, buffer in self.model.named_buffers():
            yield f"buffer {name}", buffer
        for number, optimizer in enumerate(self.optimizers):
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            for place, parameter in enumerate(parameters):
                for name, value in sorted(optimizer.state.get(parameter, {}).items()):
                    if isinstance(value, torch.Tensor):
                        yield f"state {number}.{place}.{name}", value

    def snapshot(self) -> Snapshot:
        """All of it on the CPU, and the state of random numbers."""
        values = {name: None if value is None else value.detach().cpu().clone() for name, value in self.named()}
        scaler = {} if self.scaler is None else self.scaler.state_dict()
        return Snapshot(values, torch.get_rng_state(), self.steps, scaler)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to it, as who repeats a step that was broken off does."""
        with torch.no_grad():
            for name, value in self.named():
                known = snapshot.values.get(name)
                if value is not None and known is not None:
                    value.copy_(known.to(value.device))
        for name, parameter in self.model.named_parameters():
            known = snapshot.values[f"gradient {name}"]
            if known is None:
                parameter.grad = None
            elif parameter.grad is None:
                parameter.grad = known.to(parameter.device)
        torch.set_rng_state(snapshot.random)
        self.steps = snapshot.steps
        if self.scaler is not None and snapshot.scaler:
            self.scaler.load_state_dict(snapshot.scaler)


class Training(Trained):
    """One network in training on a device; a batch is drawn for each step."""

    model: Network

    def __init__(self, make: Callable[[], Network], habits: Habits, device: torch.device, seed: int) -> None:
        torch.manual_seed(seed)
        self.habits, self.device, self.seed = habits, device, seed
        self.model = make().to(device).train()
        self.model.arrived()
        self.optimizers = _optimizers(habits, [one for one in self.model.parameters() if one.requires_grad])
        self.scaler = torch.amp.GradScaler(device.type, init_scale=2.0**8) if habits.scaled else None
        self.side = torch.Stream(device) if habits.sideways else None
        self.kept = tuple(part.to(device) for part in self._drawn(0)) if habits.fixed else None

    def step(self) -> torch.Tensor:
        """Train once."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=not self.habits.emptied)
        losses = [self._backward(self._batch(number)) for number in range(self.habits.micro)]
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizers[0])
        if self.habits.clipped:
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        for optimizer in self.optimizers:
            if self.scaler is None:
                optimizer.step()
            else:
                self.scaler.step(optimizer)
                self.scaler.update()
        self.steps += 1
        return torch.stack(losses) if len(losses) > 1 else losses[0]

    def _backward(self, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.habits.cast):
            loss: torch.Tensor = self.model(*batch) / self.habits.micro
        if self.habits.penalized:
            last = [one for one in self.model.parameters() if one.requires_grad][-4:]
            slopes = torch.autograd.grad(loss, last, create_graph=True)
            loss = loss + 0.1 * torch.stack([slope.square().sum() for slope in slopes]).sum()
        scaled = loss if self.scaler is None else self.scaler.scale(loss)
        scaled.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _drawn(self, number: int) -> tuple[torch.Tensor, ...]:
        drawn = torch.Generator().manual_seed(1000 * self.seed + 10 * self.steps + number)
        return self.model.batch(drawn)

    def _batch(self, number: int) -> tuple[torch.Tensor, ...]:
        if self.kept is not None:
            return self.kept
        drawn = self._drawn(number)
        if self.side is None:
            return tuple(part.to(self.device) for part in drawn)
        with self.side:
            moved = tuple(part.pin_memory().to(self.device, non_blocking=True) for part in drawn)
        current = torch.accelerator.current_stream(self.device)
        current.wait_stream(self.side)
        for part in moved:
            part.record_stream(current)
        return moved


class Existing(Trained):
    """A program of the sessions' tests, whose loop has a state of its own: a broken step cannot be repeated."""

    repeatable = False

    def __init__(self, build: Build, device: torch.device) -> None:
        program = build(device)
        self.model, self.optimizers, self._step = program.model, [program.optimizer], program.step

    def step(self) -> torch.Tensor:
        """Train once."""
        losses = self._step()
        self.steps += 1
        return losses


def _same(mine: torch.Tensor | None, theirs: torch.Tensor | None) -> bool:
    if mine is None or theirs is None:
        return mine is theirs
    if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
        return False
    return torch.equal(mine.nan_to_num(), theirs.nan_to_num())


def _optimizers(habits: Habits, parameters: list[nn.Parameter]) -> list[torch.optim.Optimizer]:
    optim, half = torch.optim, len(parameters) // 2
    table: dict[Optimizer, Callable[[], list[torch.optim.Optimizer]]] = {
        "sgd": lambda: [optim.SGD(parameters, lr=0.05, foreach=False)],
        "momentum": lambda: [optim.SGD(parameters, lr=0.01, momentum=0.9, foreach=True)],
        "adam": lambda: [optim.Adam(parameters, lr=1e-3, foreach=False)],
        "adamw": lambda: [optim.AdamW(parameters, lr=1e-3)],
        "adamw foreach": lambda: [optim.AdamW(parameters, lr=1e-3, foreach=True)],
        "adamw fused": lambda: [optim.AdamW(parameters, lr=1e-3, fused=True)],
        "two": lambda: [
            optim.SGD(parameters[:half], lr=0.01, momentum=0.9, foreach=False),
            optim.AdamW(parameters[half:], lr=1e-3, foreach=True),
        ],
    }
    return table[habits.optimizer]()
