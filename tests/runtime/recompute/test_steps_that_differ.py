"""Steps that are not the measured one: what is kept of the budget, what the report says, and what is refused."""

import logging
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from torch import nn

from experiments.recompute.models import Trainee
from runtime.device import memory_stats, reset_peak_memory
from runtime.recompute import plan
from solvers.ir.errors import InfeasibleBudget, InvalidInput
from tests.accelerators import prepared
from tests.runtime.recompute.training import QUICK, Outcome, trained  # noqa: F401 (the fixture reads QUICK)

pytestmark = pytest.mark.usefixtures("quick")
WIDTH = 32


class Dropping(nn.Module):
    """Blocks of which each pass calls some: the others are dropped."""

    def __init__(self, called: tuple[tuple[int, ...], ...]) -> None:
        super().__init__()
        self.called, self.passes = called, 0
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
            for _ in range(6)
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The blocks of this pass."""
        for index in self.called[min(self.passes, len(self.called) - 1)]:
            hidden = hidden + self.blocks[index](hidden)
        self.passes += 1
        return hidden


def _dropping(device: torch.device, called: tuple[tuple[int, ...], ...]) -> Trainee:
    model = Dropping(called).to(device)
    data = torch.randn(2048, WIDTH).to(device)
    return Trainee(model, tuple(model.blocks), lambda: model(data).square().mean())


FEWER_FIRST = ((0, 2, 3), (0, 1, 2, 3, 4, 5), (1, 4), (0, 1, 2, 3, 4, 5))


def _dropped(solver: str, share: float) -> tuple[Outcome, Outcome, int]:
    device, make = prepared("sim"), partial(_dropping, called=FEWER_FIRST)
    free = trained(device, make)
    budget = int(share * max(free.peaks))
    return free, trained(device, make, budget=budget, solver=solver, around=True), budget


@pytest.mark.parametrize("solver", ["heu", "joint"])
def test_blocks_that_the_measured_step_dropped_keep_the_budget(solver: str) -> None:
    """Half of them ran when it was measured; later steps call all."""
    free, kept, budget = _dropped(solver, 0.7)
    assert kept.equals(free) and kept.session is not None
    report = kept.session.report()
    assert report.within_budget and 0 < report.peak_bytes <= budget
    assert (report.diverged > 0) is (solver == "joint")
    assert report.blocks == tuple(f"blocks.{index}" for index in range(6))
    assert "blocks.5" in str(report)


class Growing(nn.Module):
    """Blocks behind which more is done in later passes, where each is given as much as ever."""

    def __init__(self) -> None:
        super().__init__()
        self.passes = 0
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(4)
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Each block on top of the one before."""
        self.passes += 1
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return hidden if self.passes < 3 else hidden.repeat(8, 1).exp().square()


def _growing(device: torch.device) -> Trainee:
    model, data = Growing().to(device), torch.randn(1024, WIDTH).to(device)
    return Trainee(model, tuple(model.blocks), lambda: model(data).square().mean())


def test_a_step_over_the_budget_stays_in_the_report_and_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    device = prepared("sim")
    free = trained(device, _growing)
    budget = int(0.9 * max(free.peaks))
    with caplog.at_level(logging.WARNING, logger="bayplan.recompute"):
        kept = trained(device, _growing, budget=budget, around=True)
    assert kept.equals(free) and kept.session is not None
    report = kept.session.report()
    assert report.replanned > 0 and report.within_budget is False
    assert report.peak_bytes >= kept.peaks[2] > budget >= report.plan_peak_bytes
    (said,) = [record.getMessage() for record in caplog.records if "more than the budget" in record.getMessage()]
    assert f"the budget of {budget}: steps take more" in said


def test_what_a_refusal_names_is_the_least_for_what_was_measured() -> None:
    with pytest.raises(InfeasibleBudget, match=r"takes at least \d+ for what was measured so far") as refused:
        trained(prepared("sim"), _growing, budget=1000, solver="joint", around=True)
    assert "exactly" not in str(refused.value)


def test_two_optimizers_are_one_step() -> None:
    """A generator and its judge, whose gradients stay until their next turn: after two steps there is a plan."""
    device = prepared("sim")
    free = _adversaries(device)
    budget = int(0.8 * max(free))
    _, second, third, fourth = _adversaries(device, budget)
    assert second <= third == fourth <= budget < min(free)
    assert third > budget // 2


def _adversaries(device: torch.device, budget: int | None = None) -> list[int]:
    """Peak bytes of each of four steps."""
    torch.manual_seed(0)
    model, data, peaks = Growing().to(device), torch.randn(1024, WIDTH).to(device), list[int]()
    makes, judges = (nn.Sequential(*model.blocks[2 * half : 2 * half + 2]) for half in range(2))
    optimizers = [torch.optim.AdamW(part.parameters()) for part in (makes, judges)]
    with nullcontext() if budget is None else plan(model, budget=budget):
        for _ in range(4):
            reset_peak_memory(device)
            made = makes(data)
            optimizers[1].zero_grad()
            (judges(data).square().mean() - judges(made.detach()).square().mean()).backward()
            optimizers[1].step()
            optimizers[0].zero_grad()
            judges(made).square().mean().backward()
            optimizers[0].step()
            peaks.append(memory_stats(device).peak_bytes)
    return peaks


def test_modules_that_are_no_part_of_the_model_are_refused() -> None:
    model = Growing().to(prepared("sim"))
    with pytest.raises(InvalidInput, match=r"blocks\[1\] is one Linear that is no part of the model Growing: give"):
        plan(model, budget=1 << 30, blocks=[model.blocks[0], nn.Linear(2, 2)])
