"""A program under test: something that trains, step after step, and what that leaves behind."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Program:
    """One training loop's body: `step` trains once and returns the losses; `kept` are the tensors to compare."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: Callable[[], torch.Tensor]

    @property
    def kept(self) -> list[torch.Tensor]:
        """Parameters and buffers, in the order of the model."""
        return [*self.model.parameters(), *self.model.buffers()]


Build = Callable[[torch.device], Program]


@dataclass(frozen=True)
class Record:
    """What a number of steps left behind, on the CPU: losses, gradients, parameters and buffers, optimizer states."""

    losses: tuple[torch.Tensor, ...]
    gradients: tuple[torch.Tensor | None, ...]
    kept: tuple[torch.Tensor, ...]
    states: tuple[torch.Tensor, ...]

    def differences(self, other: "Record") -> list[str]:
        """Names of what is not the same bit by bit; empty where all is."""
        pairs = {
            "loss": (self.losses, other.losses),
            "gradient": (self.gradients, other.gradients),
            "parameter": (self.kept, other.kept),
            "state": (self.states, other.states),
        }
        return [
            f"{name} {index}"
            for name, (mine, theirs) in pairs.items()
            for index, (a, b) in enumerate(zip(mine, theirs, strict=True))
            if not same(a, b)
        ]


def same(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    """Whether both are absent, or equal bit by bit (NaN equals NaN)."""
    if a is None or b is None:
        return a is b
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())


def states_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The optimizer's tensors in the order of its parameters."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return [
        value
        for parameter in parameters
        for _, value in sorted(optimizer.state.get(parameter, {}).items())
        if isinstance(value, torch.Tensor)
    ]


def record(program: Program, losses: Sequence[torch.Tensor]) -> Record:
    """What the program holds now, beside the losses that it has returned."""
    return Record(
        on_cpu(losses),
        tuple(None if p.grad is None else values_of(p.grad) for p in program.model.parameters()),
        on_cpu(program.kept),
        on_cpu(states_of(program.optimizer)),
    )


def on_cpu(tensors: Iterable[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Copies on the CPU."""
    return tuple(values_of(tensor) for tensor in tensors)


def values_of(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's values on the CPU; of a distributed one, this rank's."""
    local = getattr(tensor, "to_local", None)
    values: torch.Tensor = tensor.detach() if local is None else local().detach()
    return values.cpu().clone()


def trained(build: Build, device: torch.device, steps: int) -> Record:
    """A fresh program after so many plain steps."""
    program = build(device)
    return record(program, [program.step().cpu() for _ in range(steps)])
