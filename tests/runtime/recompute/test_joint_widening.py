"""A joint plan of a network that widens and narrows: a U-Net, whose blocks hand on unlike gradients."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional

from experiments.recompute.models import Trainee
from runtime.device import limited_memory
from tests.accelerators import prepared
from tests.runtime.recompute.training import QUICK, Outcome, trained

__all__ = ["QUICK"]
IMAGES, SIDE = 4, 64
pytestmark = pytest.mark.usefixtures("quick")


def convolved(channels_in: int, channels: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels_in, channels, 3, padding=1), nn.GroupNorm(4, channels), nn.SiLU())


class UNet(nn.Module):
    """Two levels; what is pooled, made larger and put side by side lies between the blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            [convolved(3, 16), convolved(16, 32), convolved(32, 64), convolved(96, 32), convolved(48, 16)]
        )
        self.last = nn.Conv2d(16, 3, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """The loss of giving the image back."""
        first, second, bottom, up, top = self.blocks
        large = first(image)
        middle = second(functional.max_pool2d(large, 2))
        small = bottom(functional.max_pool2d(middle, 2))
        risen = up(torch.cat([functional.interpolate(small, scale_factor=2), middle], 1))
        risen = top(torch.cat([functional.interpolate(risen, scale_factor=2), large], 1))
        loss: torch.Tensor = (self.last(risen) - image).square().mean()
        return loss


def unet(device: torch.device) -> Trainee:
    model = UNet().to(device)
    image = torch.randn(IMAGES, 3, SIDE, SIDE).to(device)
    return Trainee(model, (*model.blocks, model.last), lambda: model(image))


@pytest.fixture(scope="module")
def device() -> torch.device:
    return prepared("sim")


@pytest.fixture(scope="module")
def free(device: torch.device) -> Outcome:
    return trained(device, unet)


@pytest.mark.parametrize("share", [0.95, 0.9])
def test_what_is_to_go_for_the_larger_gradient_goes_before_the_backward_pass_that_makes_it(
    device: torch.device, free: Outcome, share: float
) -> None:
    """Between a backward pass's begin and its end nothing is let go: plans had counted on it, and took 7 % more.

    Behind the pass the host waits, so that nothing there is late for what launching moves takes.
    """
    budget = int(max(free.peaks[1:]) * share)
    limits = nullcontext()

    def loop(trainee: Trainee, optimizer: torch.optim.Optimizer, index: int) -> torch.Tensor:
        with limited_memory(device, budget) if index else limits:
            optimizer.zero_grad()
            loss = trainee.loss()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.accelerator.synchronize()
            optimizer.step()
        return loss.detach()

    kept = trained(device, unet, budget=budget, solver="joint", loop=loop)
    assert kept.equals(free) and kept.session is not None
    report = kept.session.report()
    assert report.within_budget and report.swapped_out > 0 and (report.replanned, report.diverged) == (0, 0)
    assert report.peak_bytes == report.predicted_peak_bytes <= budget
