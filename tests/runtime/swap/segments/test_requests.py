"""What operators ask for, one request after the other: seen the first time, known the next."""

import pytest
import torch

from runtime.device import memory_stats, use_sim
from runtime.device.native import why_missing
from runtime.swap import session
from tests.runtime.swap.segments.trials import EVERY, ready

pytestmark = pytest.mark.skipif(why_missing("runtime._sim") is not None, reason=str(why_missing("runtime._sim")))
MIB = 1 << 20
STEPS = 4


def test_temporaries_larger_than_all_tensors_find_room() -> None:
    """A convolution's backward pass takes 126 MiB beside arguments of 31.5: 157.5 of the 202 that it may have.

    The arguments lie where they lay, so that others leave and these move; the losses are those of the plain run.
    """
    build = EVERY["images"]
    trained = build(ready("images", expandable=False))
    losses = [trained.step().cpu() for _ in range(STEPS)]
    device = ready("images", expandable=False)
    trained = build(device)
    with session(int(201.8 * MIB), device=device):
        assert all(torch.equal(trained.step().cpu(), loss) for loss in losses)
    stats = memory_stats(device)
    use_sim()
    assert stats.ooms == 0 and stats.reserved_peak_bytes <= 201.8 * MIB
