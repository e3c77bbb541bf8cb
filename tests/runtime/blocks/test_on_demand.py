"""A model that is larger than the device is profiled as if there were room."""

import pytest
import torch
from torch import nn

from runtime.device import SimDevice
from runtime.device.native import core
from runtime.profile.memory import MemoryProfile, peak_bytes, profile_memory
from tests.runtime.profile.memory.models import Masked, Residual, Task, chain, task
from tests.runtime.profile.memory.test_peaks import mixes

CAPACITY = 24 << 20


def large(device: str) -> Task:
    torch.manual_seed(0)
    model = chain(12, width=384).to(device)
    data = torch.randn(32, 32).to("sim")

    def step() -> None:
        model.zero_grad()
        model(data).square().mean().backward()

    return Task(model, step)


def test_a_model_larger_than_the_device_is_profiled(sim: SimDevice) -> None:
    """Twelve blocks of 3.5 MB each on a device of 24 MB: its plain step needs four times as much."""
    sim.set_capacity(CAPACITY)
    work = large("cpu")
    before = [parameter.detach().clone() for parameter in work.model.parameters()]
    profile = profile_memory(work.model, work.step, sim.device, on_demand=True)
    assert profile.parameter_bytes > 1.6 * CAPACITY
    assert peak_bytes(profile, ("checkpoint",) * 12) > 3 * CAPACITY  # with its gradients
    after = list(work.model.parameters())
    assert {parameter.device.type for parameter in after} == {"cpu"}
    assert core.host_stats(sim.device).held_bytes == 0
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    with pytest.raises(torch.OutOfMemoryError):
        large("sim")


def test_its_peaks_are_those_of_a_profile_with_room(sim: SimDevice) -> None:
    small = _profiled_on_demand(sim)
    sim.set_capacity(1 << 30)
    work = large("sim")
    roomy = profile_memory(work.model, work.step, sim.device)
    for policies in mixes(12, 12):
        for interval in (1, 3):
            expected = peak_bytes(roomy, policies, interval)
            assert peak_bytes(small, policies, interval) == pytest.approx(expected, rel=0.01), policies
    assert [(b.activation_bytes, b.input_bytes) for b in small.blocks] == [
        (b.activation_bytes, b.input_bytes) for b in roomy.blocks
    ]
    assert [one.name for one in small.parameters] == [one.name for one in roomy.parameters]


def _profiled_on_demand(sim: SimDevice) -> MemoryProfile:
    sim.set_capacity(CAPACITY)
    work = large("cpu")
    return profile_memory(work.model, work.step, sim.device, on_demand=True)


class Skipping(nn.Module):
    """What enters the blocks is used once more behind them, which brings it back."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 64)
        self.blocks = nn.ModuleList(Residual(64) for _ in range(4))
        self.last = nn.Linear(64, 8)

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        """The skip connection is added after the last block."""
        skip = hidden = self.first(data)
        for block in self.blocks:
            hidden = block(hidden)
        result: torch.Tensor = self.last(hidden + skip)
        return result


def test_an_input_that_comes_back_outside_the_blocks_counts_once(sim: SimDevice) -> None:
    work = task(Skipping(), torch.randn(256, 16))
    roomy = profile_memory(work.model, work.step, sim.device)
    small = profile_memory(work.model, work.step, sim.device, on_demand=True)
    for policies in (("checkpoint",) * 4, ("keep",) * 4):
        assert peak_bytes(small, policies) == peak_bytes(roomy, policies)


def test_tied_frozen_and_unused_parameters_and_a_shared_mask(sim: SimDevice) -> None:
    data = torch.randint(0, 50, (4, 48))
    model = Masked(4, 32)
    plain = task(model, data, optimizer=False)
    roomy = profile_memory(plain.model, plain.step, sim.device)
    small = profile_memory(plain.model, plain.step, sim.device, on_demand=True)
    assert {parameter.device.type for parameter in plain.model.parameters()} == {"sim"}
    assert model.head.weight is model.embedding.weight
    for policies in mixes(4, 12):
        assert peak_bytes(small, policies) == pytest.approx(peak_bytes(roomy, policies), rel=0.01), policies
