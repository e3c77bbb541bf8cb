"""What a model brings to Bayplan: itself, its optimizer, and a function that does one training step."""

from collections.abc import Callable
from typing import ClassVar, NamedTuple, Protocol

import torch

Step = Callable[[], torch.Tensor]
"""One training step (forward, backward, optimizer); returns the detached loss, without waiting for the device."""


class Workload(NamedTuple):
    """A model on its device, its optimizer, and its step."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    step: Step


class Model(Protocol):
    """Something that can be built again and again: same weights, same data, same random numbers.

    `recomputes` says whether it has a variant that recomputes its activations instead of keeping them.
    """

    recomputes: ClassVar[bool]

    def build(self, device: torch.device, *, recompute: bool = False) -> Workload:
        """The model on a device, ready to train."""
        ...
