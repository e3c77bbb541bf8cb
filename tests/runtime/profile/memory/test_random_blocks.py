"""Blocks drawn at random, some frozen, some under autocast, with random policies: the peak is the executed step's."""

import random
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from runtime.device import SimDevice
from runtime.profile.memory import peak_bytes, profile_memory
from solvers.ir.layout import POLICIES
from tests.runtime.profile.memory.models import Task, task
from tests.runtime.profile.memory.test_autocast import CACHED, UNCACHED
from tests.runtime.profile.memory.test_peaks import executed
from tests.soaking import some

PARTS = ("linear", "relu", "relu in place", "gelu", "softmax", "norm", "dropout", "square", "residual", "split")


class Drawn(nn.Module):
    """Parts in a row; all blocks of a model have the same."""

    def __init__(self, parts: list[str], width: int) -> None:
        super().__init__()
        self.parts = parts
        self.layers = nn.ModuleDict()
        for number, part in enumerate(parts):
            if part in ("linear", "norm"):
                self.layers[str(number)] = nn.Linear(width, width) if part == "linear" else nn.LayerNorm(width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, given: Tensor) -> Tensor:
        """The parts, one after the other."""
        hidden = given
        for number, part in enumerate(self.parts):
            hidden = (
                self.layers[str(number)](hidden) if str(number) in self.layers else self._apart(part, hidden, given)
            )
        return hidden

    def _apart(self, part: str, hidden: Tensor, given: Tensor) -> Tensor:
        if part == "residual":
            return hidden + given
        if part == "split":
            first, second = hidden.chunk(2, -1)
            return torch.cat((first * second, second), -1)
        if part == "relu in place":
            return functional.relu_(hidden.clone())
        functions: dict[str, Callable[[Tensor], Tensor]] = {
            "relu": torch.relu,
            "gelu": functional.gelu,
            "square": torch.square,
            "dropout": self.dropout,
        }
        return functions[part](hidden) if part in functions else torch.softmax(hidden, -1)


def drawn_task(draw: random.Random) -> tuple[Task, int]:
    blocks, width = draw.randint(2, 6), 8 * draw.randint(2, 8)
    parts = ["linear", *draw.choices(PARTS, k=draw.randint(1, 7))]
    draw.shuffle(parts)
    body = [Drawn(parts, width) for _ in range(blocks)]
    layers: list[nn.Module] = [nn.Linear(16, width), *body, nn.Linear(width, draw.choice((4, 200)))]
    for module in draw.choice(([], [], layers[: draw.randint(1, blocks + 1)], draw.sample(body, draw.randint(1, 2)))):
        module.requires_grad_(False)
    context = draw.choice((nullcontext, nullcontext, CACHED, UNCACHED))
    data = torch.randn(draw.choice((64, 256)), 16)
    return task(nn.Sequential(*layers), data, optimizer=draw.random() < 0.5, context=context), blocks


@pytest.mark.parametrize("seed", some(range(16)))
def test_random_blocks_under_random_policies(seed: int, sim: SimDevice) -> None:
    draw = random.Random(seed)
    work, blocks = drawn_task(draw)
    profile = profile_memory(work.model, work.step, sim.device)
    for _ in range(6):
        policies, interval = tuple(draw.choices(POLICIES, k=blocks)), draw.randint(1, 3)
        predicted, real = peak_bytes(profile, policies, interval), executed(work, policies, interval, sim)
        assert predicted == pytest.approx(real, rel=0.01), (policies, interval)
