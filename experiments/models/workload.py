"""What a model brings to Bayplan: itself, its optimizer, and a function that does one training step."""

from collections.abc import Callable
from typing import NamedTuple

import torch

Step = Callable[[], torch.Tensor]
"""One training step (forward, backward, optimizer); returns the detached loss, without waiting for the device."""


class Workload(NamedTuple):
    """A model on its device, its optimizer, and its step."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    step: Step


Factory = Callable[[torch.device], Workload]
"""Builds the same workload again and again: same weights, same data, same random numbers."""
