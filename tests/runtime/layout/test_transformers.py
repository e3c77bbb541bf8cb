"""A GPT-2 of transformers, with its tied head, an optimizer and a scheduler of its kind."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from runtime.device import SimDevice
from runtime.layout import report, unwrap, wrap
from solvers.ir.errors import InvalidInput
from tests.runtime.layout.models import batch
from tests.runtime.layout.training import Trained, adamw, trained

transformers = pytest.importorskip("transformers")


def gpt2() -> nn.Module:
    shape = transformers.GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=4, n_head=2)
    torch.manual_seed(0)
    model: nn.Module = transformers.GPT2LMHeadModel(shape)
    return model


def loop(model: Any, optimizer: Optimizer) -> list[Tensor]:
    scheduler = transformers.get_linear_schedule_with_warmup(optimizer, 1, 5)
    losses = []
    torch.manual_seed(1)
    for number in range(4):
        tokens = batch(number)[0].to("sim")
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        losses.append(loss.detach().cpu())
    return losses


def plainly() -> Trained:
    model = gpt2().to("sim")
    return trained(model, loop(model, adamw(list(model.parameters()))))


@pytest.mark.parametrize("budget", ["1400KiB", "2MiB"])
def test_gpt2_trains_alike(sim: SimDevice, budget: str) -> None:
    want = plainly()
    model = gpt2()
    optimizer = adamw(list(model.parameters()))
    wrap(model, optimizer, budget=budget, host_budget="1GiB")
    assert trained(model, loop(model, optimizer)).same_as(want)
    told = report(model)
    assert told.departures == 0 and told.peak_bytes <= 1.02 * told.predicted_peak_bytes
    unwrap(model)


def test_its_own_checkpointing_is_refused(sim: SimDevice) -> None:
    model: Any = gpt2()
    model.gradient_checkpointing_enable()
    with pytest.raises(InvalidInput, match="checkpoints its blocks by itself"):
        wrap(model, adamw(list(model.parameters())), budget="2MiB", host_budget="1GiB")
