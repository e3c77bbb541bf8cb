"""An iteration larger than all before it: what its operators ask for is told by those of the one before."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from runtime.device import memory_stats
from runtime.device.native import why_missing
from runtime.swap import session
from tests.runtime.swap.segments.trials import ready
from tests.soaking import in_soak

pytestmark = pytest.mark.skipif(why_missing("runtime._sim") is not None, reason=str(why_missing("runtime._sim")))
WIDTH, VOCABULARY, LAYERS = 64, 8192, 40
ROWS = (512, 512, 640, 640, 960, 1200, 1800, 1800)
"""Of each step's batch; the logits of the last are 56 MiB, made of weights of 2 MiB and less than 1 MiB beside."""


def language(device: torch.device) -> Callable[[int], torch.Tensor]:
    torch.manual_seed(5)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(LAYERS)]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, VOCABULARY)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    data = torch.randn(max(ROWS), WIDTH).to(device)

    def step(rows: int) -> torch.Tensor:
        loss: torch.Tensor = model(data[:rows]).sum() * 1e-6
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


@pytest.mark.parametrize("share", [0.9, in_soak(0.75), 0.65])
def test_larger_logits_find_room(share: float) -> None:
    """As many times more than the arguments altogether had grown were expected, weights included: out of memory."""
    device = ready("language", expandable=False)
    step = language(device)
    losses = [step(rows).cpu() for rows in ROWS]
    budget = int(share * memory_stats(device).peak_bytes)
    del step
    device = ready("language", expandable=False)
    step = language(device)
    with session(budget, device=device) as swapping:
        assert all(torch.equal(step(rows).cpu(), loss) for rows, loss in zip(ROWS, losses, strict=True))
    assert (swapping.report().reserved_peak_bytes or 0) <= budget
