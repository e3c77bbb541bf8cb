"""Swapped blocks run by the swap executor: it moves what their policies say, and its peak is the predicted one."""

import pytest
import torch

from runtime.device import SimDevice
from runtime.profile.memory import block_policies, peak_bytes, profile_memory
from runtime.swap.scheduled import policy_executor
from solvers.ir.layout import Policy
from tests.runtime.profile.memory.models import Masked, chain, task
from tests.runtime.profile.memory.test_peaks import mixes


@pytest.mark.parametrize("kind", ["chain", "mask"])
def test_the_executor_has_the_predicted_peak(kind: str, sim: SimDevice) -> None:
    """Dropout's masks and statistics of norms, which no operator returns, leave as all else."""
    masked = kind == "mask"
    model = Masked(5, 32) if masked else chain(5)
    work = task(model, torch.randint(0, 50, (4, 48)) if masked else torch.randn(512, 32))
    profile = profile_memory(work.model, work.step, sim.device)
    for number, policies in enumerate(mix for mix in mixes(5, 8) if "swap" in mix):
        interval = 1 + number % 2
        executor = policy_executor(work.model, work.step, policies, sim.device, interval)
        unswapped: list[Policy] = ["keep" if policy == "swap" else policy for policy in policies]
        with block_policies(work.model, unswapped, sim.device):
            executor.run(work.step)
            torch.accelerator.reset_peak_memory_stats(sim.device)
            counts = executor.run(work.step).counts
        assert torch.accelerator.max_memory_allocated(sim.device) == pytest.approx(
            peak_bytes(profile, policies, interval), rel=1e-3
        ), policies
        assert counts.departure is None and counts.swapped_out == counts.planned
        assert counts.fetched == counts.refused == counts.postponed == 0
        if policies == ("swap",) * 5:
            assert counts.swapped_out >= 5 - interval
