"""Programs whose activations are most of their memory and take 0.3 to 8 GiB: what a budget on a GPU is for."""

from collections.abc import Callable
from functools import cache

import torch
from torch import nn
from torch.nn import functional

from experiments.models.gpt import GptShape
from tests.runtime.swap.segments.programs import Build, Residual, gpt, perceptron, regression


class Wave(nn.Module):
    """A number for each feature and a sine: next to no arithmetic for the bytes that it keeps."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((features,), 1.01))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Of the same shape."""
        return torch.sin(hidden * self.scale)


class Gated(nn.Module):
    """Normalized rows, gated by themselves, behind dropout and beside the identity."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.gate = Wave(features)
        self.dropout = nn.Dropout(0.1)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Of the same shape."""
        normal = self.norm(hidden)
        change: torch.Tensor = self.dropout(normal * torch.sigmoid(self.gate(normal)))
        return hidden + change


class Down(nn.Module):
    """Half the height and width of an image, and other channels."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(channels, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU())

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """A smaller image."""
        return functional.max_pool2d(self.body(image), 2)


class Hourglass(nn.Module):
    """A small U-Net: down, up again, and what was on the way down added on the way up."""

    def __init__(self, channels: int, depth: int) -> None:
        super().__init__()
        widths = [channels << level for level in range(depth + 1)]
        self.down = nn.ModuleList(Down(widths[level], widths[level + 1]) for level in range(depth))
        self.up = nn.ModuleList(nn.Conv2d(widths[level + 1], widths[level], 1) for level in reversed(range(depth)))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """An image of the same shape."""
        passed = []
        for down in self.down:
            passed.append(image)
            image = down(image)
        for up in self.up:
            image = functional.relu(functional.interpolate(up(image), scale_factor=2) + passed.pop())
        return image


def resnet(channels: int, blocks: int, stages: int) -> nn.Module:
    """Residual blocks, with half the size and twice the channels after each stage."""
    layers: list[nn.Module] = []
    for stage in range(stages):
        width = channels << stage
        layers += [Residual(width) for _ in range(blocks)]
        layers += [Down(width, 2 * width)]
    return nn.Sequential(*layers)


def later(build: Callable[[], Build]) -> Build:
    """Built when it is first run: these weights take a second and half a GiB, in each process that imports this."""
    built = cache(build)
    return lambda device: built()(device)


WITH_BYTES: dict[str, Build] = {
    "waves": regression(nn.Sequential(*(Wave(256) for _ in range(10))), 20000, 256),
    "gated": regression(nn.Sequential(*(Gated(256) for _ in range(4))), 18000, 256),
    "slim": regression(perceptron([24] * 13), 150000, 24),
    "funnel": regression(perceptron([96, 80, 64, 48, 32, 24, 16, 24, 32, 48, 64, 80, 96]), 60000, 96),
    "images": regression(nn.Sequential(*(Residual(4) for _ in range(6))), 28, 4, 192, 192),
}
"""Cheap to compute, so that every loss can be compared bit by bit."""

SHAPES_ONLY: dict[str, Build] = {
    "gpt-12x1024": gpt(GptShape(layers=12, width=1024, heads=16, context=1024, batch=8)),
    "gpt-24x512": gpt(GptShape(layers=24, width=512, heads=8, context=1024, batch=8)),
    "gpt-8x768-long": gpt(GptShape(layers=8, width=768, heads=12, context=4096, batch=3)),
    "gpt-4x1536": gpt(GptShape(layers=4, width=1536, heads=16, context=2048, batch=6)),
    "mlp-even": later(lambda: regression(perceptron([2048] * 17), 16384, 2048)),
    "mlp-funnel": later(
        lambda: regression(perceptron([3000, 2600, 2000, 1500, 900, 500, 900, 1500, 2000, 2600, 3000]), 30000, 3000)
    ),
    "mlp-dropout": later(lambda: regression(perceptron([1536] * 13, nn.Dropout), 40000, 1536)),
    "resnet": later(lambda: regression(resnet(48, 3, 4), 48, 48, 160, 160)),
    "hourglass": later(lambda: regression(nn.Sequential(Hourglass(48, 4), Hourglass(48, 4)), 24, 48, 192, 192)),
    "gated-deep": later(lambda: regression(nn.Sequential(*(Gated(1024) for _ in range(10))), 40000, 1024)),
}
"""Of sizes that need no bytes to be judged: operators, addresses, and time alone."""
