"""DDP and FSDP2 over several processes, each inside a session of its own: every rank as without a budget."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.forked import run_world
from tests.runtime.swap.models.ranks import main

RANKS = 2


def run(kind: str, folder: Path) -> list[dict[str, Any]]:
    run_world(main, RANKS, folder, kind, RANKS, folder)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(RANKS)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_ranks_train_as_without_a_budget(kind: str, device: torch.device, tmp_path: Path) -> None:
    ranks = run(kind, tmp_path)
    for rank in ranks:
        assert rank["peak"] <= rank["budget"]
        assert rank["swaps"] > 0
        for what in ("losses", "gradients", "kept", "states"):
            assert all(torch.equal(a, b) for a, b in zip(rank["free"][what], rank["kept"][what], strict=True))
    first, second = ranks
    assert not torch.equal(first["free"]["losses"][0], second["free"]["losses"][0])  # rows of their own
    if kind == "ddp":  # what ranks hold is the same; of FSDP2 each holds its part
        assert all(torch.equal(a, b) for a, b in zip(first["kept"]["kept"], second["kept"]["kept"], strict=True))
