"""What stays is moved once an optimizer has stepped: its states lie among activations, in segments half empty."""

import gc
import weakref

import pytest
import torch
from torch import nn

from runtime.device import CachingAllocator, limited_memory, memory_stats, use_sim
from runtime.recompute import plan, staying
from tests.accelerators import prepare_sim

REFUSED = prepare_sim()
pytestmark = pytest.mark.skipif(REFUSED is not None, reason=str(REFUSED))
MIB = 1 << 20


class Towers(nn.Module):
    """Weights of 2 MiB, activations of 6 and 12."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 512), nn.Tanh()) for _ in range(5)
        )

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        """The last block's."""
        for block in self.blocks:
            data = block(data)
        return data


def training(device: torch.device) -> tuple[nn.Module, torch.optim.Optimizer, torch.Tensor]:
    model = Towers().to(device)
    return model, torch.optim.AdamW(model.parameters(), foreach=False), torch.randn(3072, 512).to(device)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, data: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(data).square().mean().backward()
    optimizer.step()


class Kept(nn.Module):
    """Four parameters of 4 MiB, of which each lies alone in a segment, or a page, of 20."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        filled = [torch.full((MIB,), float(number), device=device) for number in range(20)]
        self.weights = nn.ParameterList(filled[::5])
        self.over = True

    def forward(self) -> torch.Tensor:
        """Something."""
        weight: torch.Tensor = self.weights[3]
        return weight[:7]

    def is_over(self) -> bool:
        """Whether no pass is under way."""
        return self.over


@pytest.mark.parametrize("expandable", [False, True])
def test_what_stays_is_moved_where_the_model_is_called_after_a_step(expandable: bool) -> None:
    """Not before a step, nor for an evaluation, nor while a pass is under way."""
    device = use_sim(allocator=CachingAllocator(expandable_segments=expandable)).device
    model, told = Kept(device), list[int]()
    optimizer = torch.optim.SGD(model.parameters())
    watched = staying.Staying(model, model.is_over, lambda: told.append(memory_stats(device).reserved_bytes))
    watched.watch()
    model()
    optimizer.step()
    with torch.no_grad():
        model()
    model.over = False
    model()
    model.over = True
    assert not told
    assert model().tolist() == [15.0] * 7
    assert told == [80 * MIB] and memory_stats(device).reserved_bytes == 20 * MIB
    model()
    watched.end()
    assert len(told) == 1
    use_sim()


@pytest.mark.parametrize("budget_mib", [165, 200])
def test_a_pass_asks_the_driver_for_nothing_where_the_device_ends_at_the_budget(budget_mib: int) -> None:
    """From the first planned pass on all blocks come from what the allocator was given ahead."""
    device = use_sim(races="off", allocator=CachingAllocator(), shapes_only=True).device
    model, optimizer, data = training(device)
    budget, asked = budget_mib * MIB, []
    with plan(model, budget=budget, solver="heu") as session:
        step(model, optimizer, data)
        torch.accelerator.empty_cache()
        with limited_memory(device, budget):
            for _ in range(6):
                step(model, optimizer, data)
                asked.append(torch.accelerator.memory_stats(device)["num_device_alloc"])
        report = session.report()
    assert len(set(asked)) == 1 and memory_stats(device).retries == 0
    assert report.replanned == 0 and report.reserved_peak_bytes <= budget and report.within_budget


def test_the_session_dies_with_its_last_name() -> None:
    """Who watches optimizers keeps nobody alive."""
    device = use_sim(races="off", allocator=CachingAllocator(), shapes_only=True).device
    model, optimizer, data = training(device)
    session = plan(model, budget=1 << 30, solver="heu")
    gc.disable()
    try:
        with session:
            step(model, optimizer, data)
        known = weakref.ref(session)
        del session
        assert known() is None
    finally:
        gc.enable()
