"""Programs of convolutions, whose kernels take temporaries that nobody knows without running them."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

Parts = tuple[nn.Module, torch.optim.Optimizer, Callable[[], torch.Tensor]]


class Residual(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.first, self.second = nn.GroupNorm(4, before), nn.GroupNorm(4, after)
        self.enter, self.leave = nn.Conv2d(before, after, 3, padding=1), nn.Conv2d(after, after, 3, padding=1)
        self.skip = nn.Conv2d(before, after, 1)

    def forward(self, x: torch.Tensor) -> Any:
        inner = self.enter(functional.silu(self.first(x)))
        return self.leave(functional.silu(self.second(inner))) + self.skip(x)


class Hourglass(nn.Module):
    """A U-Net of one level."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.down, self.up = Residual(width, 2 * width), Residual(3 * width, width)

    def forward(self, x: torch.Tensor) -> Any:
        above = self.enter(x)
        below = self.down(functional.avg_pool2d(above, 2))
        return self.leave(self.up(torch.cat([functional.interpolate(below, scale_factor=2), above], 1)))


def hourglass(device: torch.device) -> Parts:
    """With a moving average of its parameters, which neither model nor optimizer names."""
    torch.manual_seed(3)
    model = Hourglass().to(device)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    data = torch.randn(16, 3, 32, 32)

    def step() -> torch.Tensor:
        images = data.to(device)
        noise = torch.randn_like(images)
        optimizer.zero_grad(set_to_none=True)
        loss = functional.mse_loss(model(images + noise), noise)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        with torch.no_grad():
            for kept, new in zip(average.parameters(), model.parameters(), strict=True):
                kept.lerp_(new, 0.01)
        return loss.detach()

    return model, optimizer, step


def adversaries(device: torch.device) -> Parts:
    """Two models and two optimizers, one of which is all that the program tells of."""
    torch.manual_seed(5)
    maker = nn.Sequential(
        nn.Linear(32, 1024), nn.Unflatten(1, (64, 4, 4)), nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.BatchNorm2d(32),
        nn.ReLU(), nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh(),
    )  # fmt: skip
    judge = nn.Sequential(
        nn.Conv2d(3, 16, 4, 2, 1), nn.LeakyReLU(0.2, True), nn.Conv2d(16, 32, 4, 2, 1), nn.LeakyReLU(0.2, True),
        nn.Flatten(), nn.Linear(2048, 1),
    )  # fmt: skip
    both = nn.ModuleList([maker, judge]).to(device)
    making, judging = torch.optim.Adam(maker.parameters(), 2e-4), torch.optim.Adam(judge.parameters(), 2e-4)
    data = torch.randn(32, 3, 32, 32)

    def step() -> torch.Tensor:
        made = maker(torch.randn(32, 32, device=device))
        judging.zero_grad()
        first = functional.softplus(-judge(data.to(device))).mean() + functional.softplus(judge(made.detach())).mean()
        first.backward()  # type: ignore[no-untyped-call]
        judging.step()
        making.zero_grad()
        second = functional.softplus(-judge(made)).mean()
        second.backward()  # type: ignore[no-untyped-call]
        making.step()
        return (first + second).detach()

    return both, judging, step
