"""Rivals compute what plain training computes, and save memory."""

from functools import partial

import pytest
import torch

from experiments.recompute.models import MODELS, Size
from experiments.recompute.ways import checkpointed, compiled, ours, rivals
from runtime.device import memory_stats
from tests.accelerators import prepared

SIZE = Size(layers=3, width=32, heads=2, tokens=64, batch=16, vocabulary=64)
WAYS = {way.name: way for way in rivals(3)}


def outcome(way: str | None, model: str = "gpt") -> tuple[list[torch.Tensor], int]:
    device = prepared("sim")
    torch.manual_seed(0)
    trainee = MODELS[model](SIZE, device)
    around = WAYS[way].around if way is not None else None
    torch.accelerator.reset_peak_memory_stats(device)
    with checkpointed([]) if around is None else around(trainee.blocks):
        loss = trainee.loss()
        loss.backward()  # type: ignore[no-untyped-call]
        peak = memory_stats(device).peak_bytes
    assert all("forward" not in block.__dict__ for block in trainee.blocks)
    gradients = [one.grad.cpu() for one in trainee.model.parameters() if one.grad is not None]
    return [loss.detach().cpu(), *gradients], peak


@pytest.mark.parametrize("way", [name for name in WAYS if not name.startswith("compiled")])
def test_a_rival_trains_the_same_with_less(way: str) -> None:
    (free, most), (kept, peak) = outcome(None), outcome(way)
    assert all(torch.equal(a, b) for a, b in zip(free, kept, strict=True))
    assert peak < most


def test_compiled_blocks_know_a_memory_budget() -> None:
    """Where the simulated device has what Dynamo asks of it: not fused attention, which the row then says."""
    device = prepared("sim")
    block = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()).to(device)
    before = torch._functorch.config.activation_memory_budget
    with compiled([block], 0.5):
        assert torch._functorch.config.activation_memory_budget == 0.5
        assert "forward" in block.__dict__
    assert torch._functorch.config.activation_memory_budget == before


def test_who_races() -> None:
    named = [(way.name, way.share) for way in ours((0.8, 0.5))]
    assert named == [
        ("heu", 0.8), ("heu, two policies", 0.8), ("block", 0.8),
        ("heu", 0.5), ("heu, two policies", 0.5), ("block", 0.5), ("full", 0.5),
    ]  # fmt: skip
    assert [name for name in WAYS if name.startswith("checkpoint")] == [f"checkpoint, {n} of 3" for n in (1, 2, 3)]
    assert isinstance(WAYS["checkpoint, 1 of 3"].around, partial)
