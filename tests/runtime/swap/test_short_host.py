"""Parameters leave, and the host has too little room: bits are equal, or a sentence tells what lacks."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from torch import nn

from runtime.device.native import core
from runtime.swap import HostMemoryShort, session

WIDTH, LAYERS, STEPS = 128, 8, 3
STAYS = 4 * LAYERS * WIDTH * WIDTH * 4
"""Bytes of weights, gradients and both of the optimizer's states."""
KIB = 1 << 10
LIMITS = (64, 128, 256, 384, 640, 1024, 1536, 3072)


def train(device: torch.device, within: Callable[[], AbstractContextManager[object]]) -> list[float]:
    """The losses of a narrow perceptron, whose parameters are most of its memory."""
    torch.manual_seed(1)
    layers = (nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(LAYERS))
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    data, losses = torch.randn(WIDTH, WIDTH).to(device), []
    with within():
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = model(data).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def end(device: torch.device, budget_bytes: int, limit_bytes: int) -> list[float] | str:
    """The losses within both limits, or the sentence that said why there are none."""
    try:
        return train(device, lambda: session(budget_bytes, device=device, host_limit_bytes=limit_bytes))
    except HostMemoryShort as error:
        return str(error)


@pytest.mark.parametrize("share", [0.25, 0.55])
def test_what_lacks_is_named_though_the_host_was_short_before(device: torch.device, share: float) -> None:
    plain = train(device, nullcontext)
    ends = {limit: end(device, int(share * STAYS), limit * KIB) for limit in LIMITS}
    assert ends[LIMITS[-1]] == plain
    told = {limit: sentence for limit, sentence in ends.items() if sentence != plain}
    assert told
    for limit, sentence in told.items():
        assert f"host_limit_bytes={limit * KIB}" in str(sentence)


class Failing:
    """An engine that has kept errors, one after the other."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    def raise_error(self) -> None:
        if self.errors:
            raise self.errors.pop(0)


@pytest.mark.parametrize("first", [True, False], ids=["before", "behind"])
def test_a_short_host_is_told_before_another_error_and_behind_it(
    device: torch.device, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, other = core.HostMemoryShort("the host has too little room"), RuntimeError("something else")
    swapping = session(1 << 30, device=device)
    with monkeypatch.context() as patched:
        patched.setattr(swapping, "_engine", Failing(*((short, other) if first else (other, short))))
        assert swapping._kept_error() is other
    assert any("too little room" in remark for remark in swapping.report().remarks)
    swapping.close()
