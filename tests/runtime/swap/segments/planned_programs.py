"""Programs whose activations dominate and measure several hundred MiB, cheap to compute: many segments, not a few."""

import torch
from torch import nn

from experiments.models.gpt import GptShape
from tests.runtime.swap.segments.programs import Build, Residual, gpt, perceptron, regression

WIDE = {
    "gpt 24 x 1024": GptShape(layers=24, width=1024, heads=16, context=1024, batch=8),
    "gpt 32 x 1024": GptShape(layers=32, width=1024, heads=16, context=1024, batch=5),
    "gpt 16 x 1280": GptShape(layers=16, width=1280, heads=20, context=1024, batch=8),
    "gpt 48 x 768": GptShape(layers=48, width=768, heads=12, context=1024, batch=6),
}
"""Plain peaks of 12 to 17 GiB, for devices that have shapes and no bytes."""


class Waves(nn.Module):
    """Sine after sine, each of something a little larger: one number a layer, and two activations."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.scales = nn.Parameter(torch.linspace(1, 1.1, layers))

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        """The last wave."""
        for scale in self.scales.unbind():
            data = torch.sin(data * scale)
        return data


LARGER: dict[str, Build] = {
    "waves": regression(Waves(12), 4 << 20),
    "ripples": regression(Waves(24), 3 << 19),
    "mlp": regression(perceptron([64] * 13), 1 << 16, 64),
    "mlp-uneven": regression(perceptron([48, 64, 80, 96, 80, 64, 48] * 2), 40_000, 48),
    "images": regression(nn.Sequential(*(Residual(16) for _ in range(6))), 64, 16, 64, 64),
    "gpt-tall": gpt(GptShape(layers=6, width=64, heads=2, context=256, batch=32)),
}
"""By name. 16 and 6 MiB a tensor; 16; 7 to 15; 16; 2 to 8."""
