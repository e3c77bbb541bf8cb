"""Programs without a mistake whose steps are other than a plain model's: factories for `bayplan compare`."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Parts = tuple[nn.Module, torch.optim.Optimizer, Callable[[], Any]]
WIDTH, ROWS = 64, 512


def layers(device: torch.device) -> nn.Sequential:
    return nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU()))).to(device)


def overflowing(device: torch.device) -> Parts:
    """Its loss is a number, its last gradients are none: as where a scaled loss overflowed, they are not applied."""
    model = layers(device)
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.randn(ROWS, WIDTH).to(device)

    def step() -> Any:
        optimizer.zero_grad()
        loss = model(data).square().mean()
        (loss * float("nan")).backward()
        return loss.detach()

    return model, optimizer, step


def sparse(device: torch.device) -> Parts:
    """A table whose gradients are sparse beside layers whose are not."""
    table = nn.Embedding(100, WIDTH, sparse=True)
    model = nn.Sequential(table, *layers(device)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    words = torch.randint(0, 100, (ROWS,)).to(device)

    def step() -> Any:
        optimizer.zero_grad()
        loss = model(words).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, optimizer, step


def starting_late(device: torch.device) -> Parts:
    """What it carries from step to step is made in the first one, as a recurrent state or a loss's scale is."""
    model = layers(device)
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.randn(ROWS, WIDTH).to(device)
    carried: list[torch.Tensor] = []

    def step() -> Any:
        if not carried:
            carried.append(torch.zeros(ROWS, WIDTH, device=device))
        optimizer.zero_grad()
        made = model(data + carried[0])
        loss = made.square().mean()
        loss.backward()
        optimizer.step()
        carried[0] = made.detach()
        return loss.detach()

    return model, optimizer, step
