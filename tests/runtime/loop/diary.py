"""What the tests of boundaries write down, and what they train."""

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler


class Diary:
    """What the callbacks told: `(`, `)` for an optimizer and `|` for a boundary, amid what the program writes."""

    def __init__(self) -> None:
        self.text = ""
        self.backward = False

    def boundary(self) -> None:
        self.write("|")
        self.backward = False

    def optimizer(self, on: bool) -> None:
        self.write("(" if on else ")")

    def write(self, word: str) -> None:
        self.text += word


def leaf(value: float = 1.0) -> nn.Parameter:
    """A parameter with a gradient of ones."""
    parameter = nn.Parameter(torch.full((2,), value))
    parameter.grad = torch.ones(2)
    return parameter


def sgd(parameter: nn.Parameter | None = None) -> torch.optim.SGD:
    """The plainest optimizer."""
    return torch.optim.SGD([leaf() if parameter is None else parameter], lr=0.1)


def scaler() -> GradScaler:
    """A gradient scaler that works on the CPU."""
    return GradScaler("cpu", init_scale=4.0, growth_interval=1000)


def amp_loop(diary: Diary, finite: list[bool]) -> None:
    """Some iterations with loss scaling; where not finite, the step is skipped."""
    parameter, scale = leaf(), scaler()
    optimizer = torch.optim.Adam([parameter])
    for good in finite:
        optimizer.zero_grad()
        loss = (parameter * (1.0 if good else float("inf"))).sum()
        scale.scale(loss).backward()  # type: ignore[no-untyped-call]
        diary.backward = True
        diary.write("b")
        scale.step(optimizer)
        diary.write("u")
        scale.update()
