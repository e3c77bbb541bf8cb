"""Eleven programs whose activations take tens of MiB: large enough that segments of 20 MiB are not all there is."""

import copy
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from experiments.models.gpt import GptShape


@dataclass(frozen=True)
class Trained:
    """`step` trains once and returns the loss; `model` and `optimizer` are what it changes."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: Callable[[], torch.Tensor]


Build = Callable[[torch.device], Trained]


def regression(model: nn.Module, *shape: int) -> Build:
    """Trains a model to make its random input small; built once, it is copied to the device for every run."""

    def build(device: torch.device) -> Trained:
        torch.manual_seed(11)
        own, data = copy.deepcopy(model).to(device), torch.randn(*shape).to(device)
        optimizer = torch.optim.AdamW(own.parameters(), foreach=True)

        def step() -> torch.Tensor:
            loss: torch.Tensor = own(data).square().mean()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss.detach()

        return Trained(own, optimizer, step)

    return build


def perceptron(widths: Sequence[int], activation: type[nn.Module] = nn.GELU) -> nn.Module:
    pairs = itertools.pairwise(widths)
    return nn.Sequential(*(nn.Sequential(nn.Linear(one, other), activation()) for one, other in pairs))


class Residual(nn.Module):
    """Convolution, norm and activation beside the identity."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """The sum of both ways."""
        return functional.relu(image + self.body(image))


def gpt(shape: GptShape) -> Build:
    """The demo's model in another shape."""

    def build(device: torch.device) -> Trained:
        torch.manual_seed(7)
        made = shape.build(device)
        return Trained(made.model, made.optimizer, made.step)

    return build


PROGRAMS: dict[str, Build] = {
    "gpt": gpt(GptShape(layers=4)),
    "gpt-deep": gpt(GptShape(layers=12, width=64)),
    "gpt-wide": gpt(GptShape(layers=2, width=256)),
    "gpt-long": gpt(GptShape(layers=4, context=256, batch=4)),
    "even": regression(perceptron([256] * 13), 4096, 256),
    "large": regression(perceptron([384] * 7), 8192, 384),
    "growing": regression(perceptron([64, 96, 144, 216, 324, 486, 324, 216, 144, 96, 64]), 6000, 64),
    "relu": regression(perceptron([256] * 17, nn.ReLU), 2000, 256),
    "dropout": regression(perceptron([256] * 9, nn.Dropout), 5000, 256),
    "thin": regression(perceptron([128] * 17), 8192, 128),
    "residual": regression(nn.Sequential(*(Residual(16) for _ in range(4))), 16, 16, 48, 48),
}
"""By name."""
