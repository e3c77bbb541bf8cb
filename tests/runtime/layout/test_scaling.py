"""Gradient scalers and learning rate schedulers: every bit, skipped steps and scales too, is that of plain training."""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler
from torch.optim.optimizer import Optimizer

from runtime.device import SimDevice
from runtime.layout import report, unwrap
from runtime.layout.scalers import let_scalers_wait
from runtime.layout.updates import SCALED
from solvers.ir.errors import InvalidInput
from solvers.ir.layout import LayoutPlan
from tests.runtime.layout.models import Language, loss_of
from tests.runtime.layout.test_mixed import by_hand
from tests.runtime.layout.training import Layouts, MakeOptimizer, adamw, train_plainly


@pytest.fixture(autouse=True)
def scalers() -> None:
    """Also where nothing is wrapped: masters by hand lie on the host, too."""
    let_scalers_wait()


def unfused(parameters: Sequence[nn.Parameter]) -> Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2, foreach=True)


class Waiting(torch.optim.AdamW):
    """Has what the scaler tells on the host before its kernel reads it there."""

    def step(self, closure: Any = None) -> Any:
        for name in SCALED:
            told = getattr(self, name, None)
            if told is not None:
                setattr(self, name, told.cpu())
        return super().step(closure)


def waiting(parameters: Sequence[nn.Parameter]) -> Optimizer:
    return Waiting(parameters, lr=1e-2, fused=True)


def scaled(model: nn.Module, optimizer: Optimizer, clip: bool = False) -> list[Tensor]:
    """The scale begins where half precision overflows, and grows after every good step."""
    scaler = torch.amp.GradScaler("sim", init_scale=2.0**18, growth_interval=1)
    losses = []
    for step in range(6):
        loss = loss_of(model, step)
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        if clip:
            scaler.unscale_(optimizer)
            losses.append(nn.utils.clip_grad_norm_(model.parameters(), 0.05).cpu().nan_to_num(-1.0))
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses += [loss.detach().cpu(), torch.tensor(scaler.get_scale())]
    scales = losses[2::3] if clip else losses[1::2]
    pairs = list(itertools.pairwise(scales))
    assert any(later < sooner for sooner, later in pairs) and any(later > sooner for sooner, later in pairs)
    return losses


def away(layouts: Layouts, seed: int) -> LayoutPlan:
    """Nothing persists, so that norms add up in one order."""
    plan = layouts.random_plan(seed)
    return LayoutPlan(persistent=(), buffers=len(layouts.problem.chunks), policies=plan.policies)


@pytest.mark.parametrize("make_optimizer, plainly", [(adamw, waiting), (unfused, unfused)])
def test_a_gradient_scaler_skips_and_scales_alike(
    sim: SimDevice, make_optimizer: MakeOptimizer, plainly: MakeOptimizer
) -> None:
    layouts = Layouts(Language, 12_000, make_optimizer, torch.float16)
    want = by_hand(Language, torch.float16, scaled, plainly)
    for plan in (layouts.random_plan(3), away(layouts, 4)):
        assert layouts.train(plan, scaled).same_as(want), plan
    model, optimizer = layouts.wrapped(layouts.random_plan(3))
    scaled(model, optimizer)
    told = report(model)
    assert not told.overlapping and told.why_not_overlapping is not None
    unwrap(model)


def test_clipping_between_unscaling_and_the_step(sim: SimDevice) -> None:
    layouts = Layouts(Language, 12_000, unfused, torch.float16)
    want = by_hand(Language, torch.float16, partial(scaled, clip=True), unfused)
    assert layouts.train(away(layouts, 4), partial(scaled, clip=True)).same_as(want)


def test_a_scaler_that_comes_late_is_refused(sim: SimDevice) -> None:
    """Chunks have been updated beside backward by then, with gradients that nobody had divided."""
    layouts = Layouts(Language)
    model, optimizer = layouts.wrapped(away(layouts, 0))
    for step in range(2):
        loss_of(model, step).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    loss_of(model, 2).backward()  # type: ignore[no-untyped-call]
    optimizer.found_inf = torch.zeros((), device="sim")  # type: ignore[attr-defined]
    with pytest.raises(InvalidInput, match="a gradient scaler divides gradients"):
        optimizer.step()
    unwrap(model)


def one_cycle(optimizer: Optimizer) -> Any:
    return lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=6)


def sequential(optimizer: Optimizer) -> Any:
    warm = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2)
    return lr_scheduler.SequentialLR(optimizer, [warm, lr_scheduler.CosineAnnealingLR(optimizer, 4)], [2])


def on_plateau(optimizer: Optimizer) -> Any:
    return lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)


@pytest.mark.parametrize("schedule", [one_cycle, sequential, on_plateau])
def test_schedulers_set_rates_alike(sim: SimDevice, schedule: Callable[[Optimizer], Any]) -> None:
    def loop(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
        scheduler, losses = schedule(optimizer), []
        for step in range(5):
            loss = loss_of(model, step)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step(*([loss.item()] if schedule is on_plateau else []))
            losses += [loss.detach().cpu(), torch.tensor(scheduler.get_last_lr())]
        return losses

    layouts = Layouts(Language)
    want = train_plainly(Language, loop=loop)
    assert layouts.train(layouts.random_plan(3), loop).same_as(want)
