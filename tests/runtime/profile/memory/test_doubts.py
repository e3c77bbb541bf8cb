"""What one step tells of others: blocks that it did not call, sizes that depend on data, checkpoints of its own."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from runtime.device import use_sim
from runtime.profile.memory import profile_memory
from solvers.ir.errors import InvalidInput


class Odd(nn.Module):
    """Four blocks of which the last may be dropped, routed by data or checkpointed."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """As `how` says."""
        for block in self.blocks[:3]:
            hidden = block(hidden)
        if self.how == "routed":
            rows = (hidden[:, 0] > 0).nonzero(as_tuple=True)[0]
            return hidden.index_add(0, rows, self.blocks[3](hidden[rows]))
        if self.how == "checkpointed":
            return checkpoint(self.blocks[3], hidden, use_reentrant=False)  # type: ignore[no-any-return]
        return hidden if self.how == "dropped" else self.blocks[3](hidden)


def doubts(how: str) -> str:
    device = use_sim().device
    model, data = Odd(how).to(device), torch.randn(64, 8).to(device)
    profile = profile_memory(model, lambda: model(data).sum().backward(), device)
    return " ".join(one for one in profile.remarks() if "nowhere" not in one)


def test_a_step_that_others_may_differ_from_is_said_to_be_one() -> None:
    assert doubts("plain") == ""
    assert doubts("dropped").startswith("block blocks.3 was not called in the profiled step, of 4: a step that")
    assert "nonzero" in doubts("routed") and "as large as the data's values say" in doubts("routed")


def test_a_program_that_checkpoints_by_itself_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"block blocks\.3 .* the program checkpoints by itself"):
        doubts("checkpointed")
