"""Layouts, the same bodies on sim and on CUDA: losses and parameters of plain training, wherever states live."""

import gc

import pytest
import torch
from torch import Tensor, nn

from runtime.layout import report, unwrap, wrap
from tests.accelerators import ON_EACH_AT_LENGTH
from tests.runtime.layout.models import Language

STEPS, RATE = 4, 1e-3
WORDS, TOKENS = 64, 16
pytestmark = pytest.mark.usefixtures("repeatable_kernels")


def built(device: torch.device) -> nn.Module:
    torch.manual_seed(0)
    return Language(layers=6, width=64 if device.type == "sim" else 768, words=WORDS)


def losses_of(model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> list[Tensor]:
    batch = 8 if device.type == "sim" else 256
    torch.manual_seed(1)
    losses = []
    for _ in range(STEPS):
        tokens = torch.randint(WORDS, (batch, TOKENS + 1)).to(device)
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach().cpu())
    return losses


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)


@ON_EACH_AT_LENGTH
@pytest.mark.parametrize("share", [0.9, 0.6, 0.35])
def test_a_wrapped_model_trains_as_plainly(device: torch.device, share: float) -> None:
    """Where the host updates, CUDA's and its last bits differ from the second step on: there losses are close."""
    gc.collect()  # what earlier tests left would count
    model = built(device).to(device)
    optimizer = optimizer_of(model)
    torch.accelerator.reset_peak_memory_stats(device)
    expected = losses_of(model, optimizer, device)
    peak = torch.accelerator.max_memory_allocated(device)
    left = {name: one.detach().cpu() for name, one in model.state_dict().items()}
    del model, optimizer
    gc.collect()
    torch.accelerator.empty_cache()
    torch.accelerator.reset_peak_memory_stats(device)
    model = built(device)
    optimizer = optimizer_of(model)
    model, optimizer = wrap(model, optimizer, budget=int(share * peak), device=device)
    losses = losses_of(model, optimizer, device)
    told = report(model)
    unwrap(model)
    assert told.departures == 0 and told.peak_bytes <= int(share * peak), told
    assert torch.equal(losses[0], expected[0])
    trained = [(one.detach().cpu(), left[name]) for name, one in model.state_dict().items()]
    if device.type == "sim" or len(told.plan.persistent) == len(told.problem.chunks):
        assert all(torch.equal(one, other) for one, other in [*zip(losses, expected, strict=True), *trained])
    for one, other in zip(losses, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    for (
        one,
        other,
    ) in trained:  # a gradient near 0 may turn a step of AdamW, as long as the rate
        torch.testing.assert_close(one, other, rtol=1e-4, atol=RATE)
