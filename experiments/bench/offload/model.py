"""What races: a GPT in bfloat16, whose blocks each way may wrap in its own manner."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import nn

from experiments.models.gpt import Gpt, GptShape, GptStep
from experiments.models.workload import Workload

Wrap = Callable[[nn.Module], nn.Module]


@dataclass(frozen=True, kw_only=True)
class RaceShape:
    """Sizes of a race; `name` is layers × width."""

    layers: int = 8
    width: int = 128
    heads: int = 4
    context: int = 128
    batch: int = 8
    shares: tuple[float, ...] = (0.75, 0.6, 0.45)
    """Budgets of sessions and plans, as shares of the plain run's peak."""

    @property
    def name(self) -> str:
        """As rows are called."""
        return f"{self.layers} x {self.width}"

    def build(self, device: torch.device, wrap: Wrap | None = None) -> Workload:
        """Model, AdamW and step, the same numbers each time on one kind of device.

        Weights are drawn on the CPU for sim, where both are the same, and on the device elsewhere: a billion of them
        would take the CPU longer than the race.
        """
        shape = GptShape(
            layers=self.layers,
            width=self.width,
            heads=self.heads,
            context=self.context,
            batch=self.batch,
            dropout=0.0,
            learning_rate=1e-4,
        )
        torch.manual_seed(shape.seed)
        with nullcontext() if device.type == "sim" else device:
            model = Gpt(shape).to(torch.bfloat16)
        model = model.to(device)
        if wrap is not None:
            model.blocks = nn.ModuleList(wrap(block) for block in model.blocks)
        optimizer = torch.optim.AdamW(model.parameters(), lr=shape.learning_rate, fused=True)
        return Workload(model, optimizer, GptStep(shape, model, optimizer, device))


SIM_SHAPES = (RaceShape(),)
CUDA_SHAPES = (
    RaceShape(layers=24, width=2048, heads=16, context=1024, batch=16),
    # Weights, gradients and AdamW's moments alone are two thirds of that one's peak: no way leaves these.
    RaceShape(layers=8, width=8192, heads=64, context=2048, batch=8, shares=(0.75, 0.7)),
)
