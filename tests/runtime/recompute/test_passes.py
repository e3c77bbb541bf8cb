"""Several forward passes before their backward passes: counted, planned for as many, or each call by itself."""

import itertools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache, partial

import pytest
import torch
from torch import nn
from torch.nn import functional

from experiments.recompute.models import Trainee
from runtime.device import limited_memory
from runtime.recompute.calls import Call
from runtime.recompute.course import LAST, Event, Happened
from runtime.recompute.footprint import mark_of
from runtime.recompute.numbering import Numbering
from runtime.recompute.passes import passes_at_once
from runtime.recompute.policy import ON_DEMAND
from runtime.recompute.tape import Tape
from tests.accelerators import prepared
from tests.runtime.recompute.training import QUICK, Loop, Outcome, limited, trained
from tests.soaking import in_soak, some

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
    assert report.replanned == 0 and len(kept.session.layers) == 3 * len(report.blocks)


class Shared(nn.Module):
    """Blocks that are called for a long row and a short one, or, all of them, once for each of four words."""

    def __init__(self, *, unrolled: bool) -> None:
        super().__init__()
        self.unrolled, self.head = unrolled, nn.Linear(64, 64)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64), nn.Dropout(0.1))
            for _ in range(3)
        )

    def encoded(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.head(words)  # whose gradient each pass adds to
        if not self.unrolled:
            a, b = self.encoded(x).mean(1), self.encoded(x[:, :8]).mean(1)
            return functional.cross_entropy(a @ b.T, torch.arange(len(a), device=a.device))
        state, losses = x[:, 0], []
        for one in x.unbind(1)[:4]:
            state = self.encoded(state + one)
            losses.append(self.head(state).square().mean())
        return torch.stack(losses).sum()


def _shared(device: torch.device, *, unrolled: bool) -> Trainee:
    model, words = Shared(unrolled=unrolled).to(device), torch.randn(512 if unrolled else 32, 32, 64).to(device)
    return Trainee(model, tuple(model.blocks), lambda: model(words))


PROGRAMS: dict[str, Callable[[torch.device], Trainee]] = {
    "triplet": triplet,
    "two lengths": partial(_shared, unrolled=False),
    "unrolled": partial(_shared, unrolled=True),
}


def timed(device: torch.device, budget: int, took_us: list[float]) -> Loop:
    """Ordinary steps on a device of that size, and how long a forward and a backward pass take."""

    def loop(trainee: Trainee, optimizer: torch.optim.Optimizer, index: int) -> torch.Tensor:
        with limited_memory(device, budget) if index else nullcontext():
            optimizer.zero_grad()
            torch.accelerator.synchronize(device)
            marks = [torch.Event(device, enable_timing=True) for _ in range(2)]
            marks[0].record()
            loss = trainee.loss()
            loss.backward()  # type: ignore[no-untyped-call]
            marks[1].record()
            torch.accelerator.synchronize(device)
            took_us.append(1000 * marks[0].elapsed_time(marks[1]))
            optimizer.step()
            return loss.detach()

    return loop


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("name", "share"),
    [("two lengths", 0.75), ("unrolled", 0.75), *map(in_soak, ("triplet", "triplet", "unrolled"), (0.75, 0.6, 0.7))],
)
def test_recomputation_alone_is_not_faster_than_a_joint_plan(name: str, share: float) -> None:
    """Each call is decided by itself: with one decision for all passes `joint` took up to 5.6 % longer than `heu`."""
    device, make = prepared("sim"), PROGRAMS[name]
    plain = trained(device, make)
    budget, took = int(share * max(plain.peaks[1:])), dict[str, list[float]]()
    for solver in ("joint", "heu"):
        took[solver] = []
        loop = timed(device, budget, took[solver])
        kept = trained(device, make, budget=budget, solver=solver, loop=loop, around=True)
        assert kept.equals(plain) and max(kept.peaks[1:]) <= budget
        if solver == "joint":
            assert kept.session is not None
            report, calls = kept.session.report(), kept.session.layers
            assert len(calls) > len(report.blocks) and report.diverged == report.replanned == 0
            assert report.pass_us == pytest.approx(report.predicted_pass_us, rel=0.01)
    assert took["joint"][-1] <= took["heu"][-1]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("solver", ["joint", "opt"])
@pytest.mark.parametrize("counts", [(2, 2, 1, 2, 3, 2), (3, 3, 2, 3, 2, 2, 3, 2, 2, 3), (2, 2, 3, 1, 3, 1, 3, 1, 3)])
def test_steps_of_fewer_and_of_more_passes_than_the_measured_one(counts: Sequence[int], solver: str) -> None:
    """Fewer are the plan's first ones, and replace none; for more, all runs again, however often they come."""
    device = prepared("sim")

    def varied(device: torch.device) -> Trainee:
        model, left = Triplet().to(device), iter(counts)
        images = [torch.randn(8, 3, 32, 32).to(device) for _ in range(3)]

        def loss() -> torch.Tensor:
            return torch.stack([model.encoded(one).square().sum() for one in images[: next(left)]]).sum()

        return Trainee(model, tuple(model.blocks), loss)

    plain = trained(device, varied, steps=len(counts))
    budget = int(0.9 * max(plain.peaks[1:3]))
    kept = trained(device, varied, budget=budget, solver=solver, around=True, steps=len(counts))
    assert kept.equals(plain) and kept.session is not None
    assert max(kept.peaks[1:]) <= budget and len(kept.session.layers) > 4


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("solver", ["joint", "opt"])
def test_passes_that_go_back_one_by_one_where_the_measured_ones_went_back_as_one(solver: str) -> None:
    """What is stored goes then: it stayed longer than planned, so that plans for less followed until there was none."""
    device = prepared("sim")

    def varied(device: torch.device) -> Trainee:
        model, turns = Triplet().to(device), itertools.count()
        images = [torch.randn(8, 3, 32, 32).to(device) for _ in range(3)]

        def loss() -> torch.Tensor:
            losses = [model.encoded(one).square().sum() for one in images]
            if next(turns) % 2:
                for one in losses[:-1]:
                    one.backward()  # type: ignore[no-untyped-call]
                return losses[-1]
            return torch.stack(losses).sum()

        return Trainee(model, tuple(model.blocks), loss)

    plain = trained(device, varied, steps=8)
    budget = int(0.6 * max(plain.peaks[1:]))
    kept = trained(device, varied, budget=budget, solver=solver, around=True, steps=8)
    assert kept.equals(plain) and max(kept.peaks[1:]) <= budget


def calls_of(*passes: Sequence[int], back: Sequence[int] = ()) -> list[Call]:
    """Calls of these blocks, whose backward passes come in the opposite order, or at such places."""
    blocks = list(itertools.chain(*passes))
    returns = back or range(len(blocks))[::-1]
    return [
        Call(block, ON_DEMAND, None, Tape.__new__(Tape), backward_waits=(0, 0), backward_marks=(at, None))
        for block, at in zip(blocks, returns, strict=True)
    ]


def test_calls_of_passes_that_go_back_as_one_have_numbers_of_their_own() -> None:
    calls = calls_of([2, 0], [2, 0], [0])
    called = Numbering(range(3)).called(calls)
    numbering = called.by_calls(calls)
    assert numbering is not None and [one.block for one in calls] == [0, 1, 2, 3, 4]
    assert calls[3].before is calls[2] and calls[0].before is None
    assert [numbering.number_of(index, at) for at, index in enumerate([2, 0, 2, 0, 0])] == [0, 1, 2, 3, 4]
    assert numbering.number_of(1, 2) > 4 and numbering.number_of(2, 5) > 4, "calls that the measured step did not have"
    assert numbering.places == {0, 2}
    for other in (calls_of([0, 1, 2]), calls_of([0, 1], [0, 1], back=[1, 0, 3, 2]), calls_of(*[[0]] * 200)):
        assert Numbering(range(3)).called(other).by_calls(other) is None
