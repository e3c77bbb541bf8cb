"""A walk over blocks: passes, their ends, what is measured in between, and what stays behind: nothing."""

import gc
import weakref

import pytest
import torch
from torch import nn

from experiments.recompute.models import Trainee
from runtime.recompute.policy import store_everything, store_nothing
from runtime.recompute.walk import Walk
from solvers.ir.errors import InvalidInput
from tests.accelerators import prepared
from tests.runtime.recompute.training import QUICK, limited, trained

__all__ = ["QUICK"]


@pytest.fixture
def device() -> torch.device:
    return prepared("sim")


def network(device: torch.device) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Dropout(0.2), nn.Linear(64, 32)) for _ in range(3))
    ).to(device)


def step(model: nn.Module, device: torch.device) -> list[torch.Tensor]:
    """Gradients of one step."""
    torch.manual_seed(1)
    model.zero_grad()
    model(torch.ones(16, 32, device=device, requires_grad=True)).sum().backward()
    return [parameter.grad.cpu() for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("policies", [store_nothing, store_everything])
@pytest.mark.parametrize("timed", [False, True])
def test_gradients_are_those_of_plain_training(policies: object, timed: bool, device: torch.device) -> None:
    model = network(device)
    free = step(model, device)
    with Walk(list(model), device, policies(3), timed=timed) as walk:  # type: ignore[operator]
        kept = step(model, device)
        assert walk.idle
    assert all(torch.equal(a, b) for a, b in zip(free, kept, strict=True))


def test_a_walk_is_idle_after_a_pass_and_its_backward_pass_only(device: torch.device) -> None:
    """A walk that has seen no pass is not: the counts that it is given may be an earlier walk's."""
    model = network(device)
    with Walk(list(model), device, store_nothing(3)) as first:
        step(model, device)
    assert first.counts.on_demand > 0
    with Walk(list(model), device, store_nothing(3), counts=first.counts) as walk:
        assert not walk.idle
        loss = model(torch.ones(16, 32, device=device, requires_grad=True)).sum()
        assert not walk.idle
        loss.backward()
        assert walk.idle


def test_a_measured_step_tells_its_memory(device: torch.device) -> None:
    """A call that fails has a tape, and no place in what is reckoned."""
    model = network(device)
    with Walk(list(model), device, store_nothing(3), timed=True, intervals=True) as walk:
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            model[0](torch.ones(16, 31, device=device, requires_grad=True))
        step(model, device)
        footprint = walk.measurement.footprint()
        assert [call.block for call in footprint.calls] == [-1, 0, 1, 2]
        assert footprint.walk(store_nothing(3)).peak_bytes == footprint.most_bytes
        assert len(walk.measurement.layers()) == 3
        assert walk.measurement.layers()[0].names == walk.measurement.layers()[2].names


def test_passes_without_gradients_are_not_recorded(device: torch.device) -> None:
    model = network(device)
    with Walk(list(model), device, store_nothing(3)) as walk:
        with torch.no_grad():
            model(torch.ones(16, 32, device=device))
        assert not walk.calls


def test_a_forward_pass_that_was_dropped_ends_with_what_it_made(device: torch.device) -> None:
    model = network(device)
    with Walk(list(model), device, store_nothing(3)) as walk:
        loss = model(torch.ones(16, 32, device=device, requires_grad=True)).sum()
        assert not walk.idle
        del loss
        assert walk.idle


def test_afterwards_the_blocks_are_as_before_and_nothing_holds_the_walk(device: torch.device) -> None:
    model = network(device)
    walk = Walk(list(model), device, store_nothing(3))
    with walk:
        step(model, device)
        with pytest.raises(InvalidInput, match="begun already: end it first"):
            walk.__enter__()
    assert all("forward" not in block.__dict__ for block in model)
    alive = weakref.ref(walk)
    del walk
    gc.collect()
    assert alive() is None


def frozen(device: torch.device) -> Trainee:
    """Fine-tuning: the first block is as it was, and its input is data."""
    model, data = network(device), torch.randn(2048, 32).to(device)
    model[0].requires_grad_(False)
    return Trainee(model, tuple(model), lambda: model(data).square().mean())


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("solver", ["heu", "opt", "joint"])
def test_a_first_block_that_is_frozen_is_no_part_of_the_pass(solver: str, device: torch.device) -> None:
    """Every step differed from its plan, stored nothing, and was measured again."""
    free = trained(device, frozen)
    budget = int(0.8 * max(free.peaks[1:]))
    kept = trained(device, frozen, budget=budget, solver=solver, loop=limited(device, budget), around=True)
    assert kept.equals(free) and max(kept.peaks[1:]) <= budget
    assert kept.session is not None
    report = kept.session.report()
    assert (report.measured, report.diverged, report.replanned) == (1, 0, 0)
    assert len(kept.session.layers) == 2


def test_a_block_that_trains_what_it_was_not_given_is_recorded_once_that_shows(device: torch.device) -> None:
    model, prompt = network(device), torch.ones(32, device=device, requires_grad=True)
    model[0].requires_grad_(False)
    run = model[0].forward
    model[0].forward = lambda data: run(data + prompt)
    data, found, recorded = torch.ones(16, 32, device=device), list[torch.Tensor](), list[list[int]]()
    with Walk(list(model), device, store_nothing(3)) as walk:
        for _ in range(2):
            torch.manual_seed(1)
            found.append(torch.autograd.grad(model(data).sum(), prompt)[0].cpu())
            recorded.append([call.block for call in walk.calls])
    assert recorded == [[1, 2], [0, 1, 2]]
    assert torch.equal(*found) and found[0].any()
