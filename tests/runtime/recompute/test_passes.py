"""Several forward passes before their backward passes: counted, and planned for as many."""

import itertools
from functools import cache

import pytest
import torch
from torch import nn
from torch.nn import functional

from experiments.recompute.models import Trainee
from runtime.recompute.course import LAST, Event, Happened
from runtime.recompute.footprint import mark_of
from runtime.recompute.passes import passes_at_once
from tests.accelerators import prepared
from tests.runtime.recompute.training import QUICK, Outcome, limited, trained
from tests.soaking import some

__all__ = ["QUICK"]


def marks(*told: tuple[int, bool]) -> list[Event]:
    return [(-1, Happened.MARK, mark_of(call, backward), 0, 0) for call, backward in told]


def alike(*blocks: int) -> list[tuple[int, int]]:
    return [(block, 512) for block in blocks]


def test_calls_of_a_block_count_until_their_backward_pass() -> None:
    ordinary = marks((0, False), (1, False), (1, True), (0, True))
    assert passes_at_once(ordinary, alike(0, 1)) == {0: 1, 1: 1}
    twice = marks((0, False), (1, False), (2, False), (3, False), (3, True), (2, True), (1, True), (0, True))
    assert passes_at_once([*twice, (-1, Happened.MARK, LAST, 0, 0)], alike(0, 1, 0, 1)) == {0: 2, 1: 2}
    shared = marks((0, False), (1, False), (2, False), (2, True), (1, True), (0, True))
    assert passes_at_once(shared, alike(0, 1, 0)) == {0: 2, 1: 1}, "an encoder for two inputs of one head"
    one_after_the_other = marks((0, False), (0, True), (1, False), (1, True))
    assert passes_at_once(one_after_the_other, alike(0, 0)) == {0: 1}
    assert passes_at_once(marks((0, False), (1, False), (1, True)), alike(0, 0)) == {0: 1}, "a loss that nobody uses"
    assert passes_at_once([], []) == {}


def test_calls_of_unlike_sizes_count_by_their_bytes() -> None:
    two = marks((0, False), (1, False), (1, True), (0, True))
    assert passes_at_once(two, [(0, 3000), (0, 1000)]) == {0: 4}, "the last one is measured"
    assert passes_at_once(two, [(0, 1000), (0, 4000)]) == {0: 1.25}
    apart = marks((0, False), (0, True), (1, False), (1, True))
    assert passes_at_once(apart, [(0, 3000), (0, 1000)]) == {0: 3}, "a large microbatch, then a small one"


class Triplet(nn.Module):
    """One encoder for three images at once, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(8 if one else 3, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.ReLU(), nn.Dropout(0.1))
            for one in range(4)
        )
        self.head = nn.Linear(8, 16)

    def encoded(self, image: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            image = block(image)
        return functional.normalize(self.head(image.mean((2, 3))), dim=1)

    def forward(self, images: list[torch.Tensor]) -> torch.Tensor:
        anchor, like, other = (self.encoded(one) for one in images)
        loss: torch.Tensor = functional.triplet_margin_loss(anchor, like, other)
        return loss


def triplet(device: torch.device) -> Trainee:
    model = Triplet().to(device)
    images = [torch.randn(8, 3, 32, 32).to(device) for _ in range(3)]
    return Trainee(model, tuple(model.blocks), lambda: model(images))


@cache
def free() -> Outcome:
    return trained(prepared("sim"), triplet)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("share", "solver"), some(itertools.product((0.6, 0.75), ("joint", "greedy-joint", "opt"))))
def test_a_siamese_network_keeps_the_budget_on_a_device_of_that_size(solver: str, share: float) -> None:
    """From the first planned step on: planned as one pass it took half as much again."""
    device, budget = prepared("sim"), int(share * max(free().peaks[1:]))
    kept = trained(device, triplet, budget=budget, solver=solver, loop=limited(device, budget), around=True)
    assert kept.equals(free()) and max(kept.peaks[1:]) <= budget
    assert kept.session is not None
    report = kept.session.report()
    assert max(kept.peaks[1:]) <= report.predicted_peak_bytes <= budget
    assert report.replanned == 0
