"""Random numbers to measure with: a chip that its power limits runs constants faster than anything that is trained."""

import math
from collections.abc import Sequence

import torch

DRAWN = 1 << 20
"""Numbers that are drawn; larger samples repeat them, which costs the host little and the device's wires nothing."""


def sample(shape: Sequence[int], device: torch.device, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Normally distributed numbers, the same at each call; PyTorch's own generators are left alone."""
    count = math.prod(shape)
    drawn = torch.randn(min(count, DRAWN), generator=torch.Generator().manual_seed(0)).to(device, dtype)
    whole = drawn.repeat(-(-count // DRAWN))[:count] if count > DRAWN else drawn
    return whole.view(*shape)
