"""What updates ask of the user's optimizer: its settings, its step by itself, and why it may not overlap."""

from collections.abc import Callable, Set
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from runtime.layout.foreach import is_decided_late, is_portioned

Settings = tuple[tuple[tuple[str, object], ...], ...]
"""Each group's, without its parameters."""


def settings_of(optimizer: Optimizer) -> Settings:
    """Every group's settings, to be compared; of tensors their values are those of now."""

    def plain(value: object) -> object:
        return float(value) if isinstance(value, torch.Tensor) else value

    groups = optimizer.param_groups
    return tuple(tuple((key, plain(one)) for key, one in group.items() if key != "params") for group in groups)


def raw_step(optimizer: Optimizer) -> Callable[..., Any]:
    """The class's step without the hooks around it, which run once a step."""
    step = type(optimizer).step
    return getattr(step, "__wrapped__", step) if getattr(step, "hooked", False) else step


def why_not(optimizer: Optimizer, overlap: bool, others: Set[int]) -> str | None:
    """Why none of its updates may run beside backward; None where a step may show that they may."""
    if not overlap:
        return "overlap_update is False"
    if not is_portioned(optimizer):
        return f"{type(optimizer).__name__} is not known to treat each parameter by itself"
    if is_decided_late(optimizer, others):
        return f"{type(optimizer).__name__} rounds by which parameters of classes of their own have gradients"
    return None
