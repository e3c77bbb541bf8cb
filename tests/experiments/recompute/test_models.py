"""Every model of the race trains, and its blocks are alike."""

import pytest
import torch

from experiments.recompute.models import MODELS, SMALL_NETWORKS, TINY
from tests.accelerators import prepared


@pytest.mark.parametrize("name", list(MODELS))
def test_it_gives_a_loss_whose_gradients_reach_all_blocks(name: str) -> None:
    if name not in SMALL_NETWORKS:
        pytest.importorskip("transformers")
    torch.manual_seed(0)
    trainee = MODELS[name](TINY, prepared("sim"))
    loss = trainee.loss()
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.isfinite().item() and loss.dim() == 0
    assert len(trainee.blocks) >= 2 and len({type(block) for block in trainee.blocks}) == 1
    assert all(parameter.grad is not None for block in trainee.blocks for parameter in block.parameters())
