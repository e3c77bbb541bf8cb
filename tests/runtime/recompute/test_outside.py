"""What programs do with blocks' tensors outside of the blocks: joint plans keep their budget there, to the byte."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional

from experiments.recompute.models import Trainee
from runtime.device import limited_memory
from runtime.recompute import plan
from runtime.recompute.course import Happened, NodeShape, TapeShape
from runtime.recompute.footprint import LAST, CallFacts, mark_of
from runtime.recompute.outside import AFTER, Use, uses_of
from runtime.recompute.session import ON_DEMAND
from solvers.ir.errors import InfeasibleBudget
from tests.accelerators import prepared
from tests.runtime.recompute import training
from tests.runtime.recompute.stories import Device
from tests.runtime.recompute.test_joint import QUICK
from tests.runtime.recompute.training import Loop, Outcome, trained

WIDTH, STEPS = 32, 3
Build = Callable[[torch.device], Trainee]


@pytest.fixture(scope="module")
def device() -> torch.device:
    return prepared("sim")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solvers stop by deterministic work."""
    monkeypatch.setattr(training, "plan", partial(plan, limits=QUICK))


class Two(nn.Module):
    """Returns what the next block is given, and what it computed within."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Both."""
        inner = torch.tanh(self.first(hidden))
        return hidden + self.second(inner * inner), inner


class Given(Two):
    """Passes on more than the next block needs."""

    def forward(self, given: "torch.Tensor | dict[str, torch.Tensor]") -> dict[str, torch.Tensor]:  # type: ignore[override]
        """What it was given, too."""
        hidden = given["hidden"] if isinstance(given, dict) else given
        out, inner = super().forward(hidden)
        return {"hidden": out, "inner": inner, "old": hidden}


class Ends(nn.Module):
    """Autograd saves what it returns, and the next block is given something else."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Of the same shape."""
        return torch.tanh(self.second(torch.tanh(self.first(torch.tanh(hidden)))))


class Down(nn.Module):
    """Half of a U-Net's level."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """As large as the image."""
        return functional.relu(self.second(functional.relu(self.first(image))))


class Up(nn.Module):
    """The other half, which is given what the first one made."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2 * channels, channels, 3, padding=1), nn.Conv2d(channels, channels, 1)

    def forward(self, image: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        """As large as both."""
        result: torch.Tensor = self.second(torch.tanh(self.first(torch.cat([image, skip], 1))))
        return result


def twos(loss: Callable[[torch.Tensor, list[torch.Tensor]], torch.Tensor], device: torch.device) -> Trainee:
    """Blocks whose second results are used at the end."""
    model = nn.ModuleList(Two() for _ in range(4)).to(device)
    data = torch.randn(256, WIDTH).to(device)

    def run() -> torch.Tensor:
        hidden, inner = data, []
        for block in model:
            hidden, one = block(hidden)
            inner.append(one)
        return loss(hidden, inner)

    return Trainee(model, tuple(model), run)


def means(hidden: torch.Tensor, inner: list[torch.Tensor]) -> torch.Tensor:
    """Second results are read, and gone before the backward pass."""
    return hidden.square().mean() + torch.stack([one.mean() for one in inner]).sum()


def joined(hidden: torch.Tensor, inner: list[torch.Tensor]) -> torch.Tensor:
    """One operator reads all of them."""
    return hidden.square().mean() + torch.cat(inner, -1).square().mean()


def passing(device: torch.device) -> Trainee:
    """Blocks that are given dictionaries."""
    model = nn.Sequential(*(Given() for _ in range(4))).to(device)
    data = torch.randn(256, WIDTH).to(device)

    def run() -> torch.Tensor:
        last = model(data)
        return torch.stack([one.square().mean() for one in last.values()]).sum()

    return Trainee(model, tuple(model), run)


def ending(device: torch.device) -> Trainee:
    """What a block returns is read between the blocks, and then gone."""
    model = nn.ModuleList(Ends() for _ in range(4)).to(device)
    data = torch.randn(256, WIDTH).to(device)

    def run() -> torch.Tensor:
        hidden = data
        for block in model:
            hidden = block(hidden) * 1.1
        return hidden.square().mean()

    return Trainee(model, tuple(model), run)


def unet(decoder_in_blocks: bool, device: torch.device) -> Trainee:
    """Skips are read late, by other blocks or by the program."""
    stem, head = nn.Conv2d(3, 6, 1), nn.Conv2d(6, 1, 1)
    down, middle, up = [Down(6), Down(6)], Down(6), [Up(6), Up(6)]
    model = nn.ModuleList([stem, *down, middle, *up, head]).to(device)
    images = torch.randn(4, 3, 32, 32).to(device)

    def run() -> torch.Tensor:
        image, skips = stem(images), []
        for one in down:
            image = one(image)
            skips.append(image)
            image = functional.avg_pool2d(image, 2)
        image = middle(image)
        for two in up:
            image = two(functional.interpolate(image, scale_factor=2), skips.pop())
        loss: torch.Tensor = head(image).square().mean()
        return loss

    return Trainee(model, (*down, middle, *(up if decoder_in_blocks else [])), run)


class Kept(nn.Module):
    """The program keeps what autograd does not need, and what it does."""

    def __init__(self, kept: list[torch.Tensor]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.kept = kept

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Of the same shape."""
        wide = self.first(hidden)
        inner = torch.sigmoid(wide)
        self.kept += [wide.detach(), inner.detach()]
        result: torch.Tensor = hidden + self.second(inner)
        return result


KEPT: list[torch.Tensor] = []


def keeping(device: torch.device) -> Trainee:
    """Activations that the program keeps until the next step."""
    model = nn.Sequential(*(Kept(KEPT) for _ in range(4))).to(device)
    data = torch.randn(256, WIDTH).to(device)
    return Trainee(model, tuple(model), lambda: model(data).square().mean())


def writing(trainee: Trainee, optimizer: torch.optim.Optimizer, _: int) -> torch.Tensor:
    """Between the passes the program writes what it keeps and autograd does not need."""
    KEPT.clear()
    optimizer.zero_grad()
    loss = trainee.loss()
    for one in KEPT[::2]:
        one.add_(1)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return torch.stack([loss.detach(), *(one.sum() for one in KEPT)])


PROGRAMS: dict[str, tuple[Build, Loop]] = {
    "two results": (partial(twos, means), training.ordinary),
    "results joined": (partial(twos, joined), training.ordinary),
    "dictionaries": (passing, training.ordinary),
    "saved results": (ending, training.ordinary),
    "skips between blocks": (partial(unet, True), training.ordinary),
    "skips to the program": (partial(unet, False), training.ordinary),
    "written in place": (keeping, writing),
}


@pytest.fixture
def ending_empty() -> Iterator[None]:
    """What a test's program keeps is gone with it."""
    yield
    KEPT.clear()


def within(device: torch.device, stack: ExitStack, budget: int, loop: Loop) -> Loop:
    """From the second step on the device has the budget and no byte more."""

    def run(trainee: Trainee, optimizer: torch.optim.Optimizer, index: int) -> torch.Tensor:
        if index == 1:
            stack.enter_context(limited_memory(device, budget))
        return loop(trainee, optimizer, index)

    return run


def kept_within(device: torch.device, name: str, budget: int) -> Outcome:
    """The program planned, with that much memory."""
    make, loop = PROGRAMS[name]
    with ExitStack() as stack:
        limited = within(device, stack, budget, loop)
        return trained(device, make, budget=budget, solver="greedy-joint", loop=limited, steps=STEPS)


def least_of(device: torch.device, name: str) -> int:
    """The least budget that a refusal names; nothing of the refused training is left."""
    make, loop = PROGRAMS[name]
    with pytest.raises(InfeasibleBudget, match=r"need exactly \d+ bytes") as refused:
        trained(device, make, budget=200_000, solver="greedy-joint", loop=loop, steps=2)
    assert refused.value.least_budget_bytes is not None
    return refused.value.least_budget_bytes


def require_kept(kept: Outcome, free: Outcome, budget: int) -> None:
    """Same bits, and as reckoned; nothing of the training is left."""
    assert kept.equals(free) and kept.session is not None
    report = kept.session.report()
    assert report.peak_bytes <= report.predicted_peak_bytes <= budget
    assert (report.replanned, report.refused, report.postponed) == (0, 0, 0)


@pytest.mark.usefixtures("ending_empty")
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_budgets_are_kept_where_the_program_reads_and_holds_what_blocks_made(device: torch.device, name: str) -> None:
    make, loop = PROGRAMS[name]
    free = trained(device, make, loop=loop, steps=STEPS)
    least = least_of(device, name) + 512 * STEPS  # the loop keeps its losses
    for budget in (least, (least + max(free.peaks)) // 2):
        require_kept(kept_within(device, name, budget), free, budget)


def test_reads_and_ends_are_told_by_place() -> None:
    """Two blocks of one operator each: the first one's result is read in the second block, and dies after the loss."""
    log, shape = Device(), TapeShape((NodeShape((), ((0, -1),), runs_again=True, communicates=False),), (512,))
    for call in range(2):
        log.note(-1, Happened.MARK, mark_of(call, backward=False))
        log.note(call, Happened.NODE, 0)
        if call == 1:
            log.note(0, Happened.READ, 0)
        log.take(512)
        log.note(call, Happened.MADE, 0)
        log.note(call, Happened.END)
    log.note(-1, Happened.ELSE, 0)
    log.note(0, Happened.READ, 0)
    log.note(-1, Happened.ELSE, 1)
    log.take(-512)
    log.note(-1, Happened.ELSE, 0, died=())
    log.events.append((0, Happened.DIED, 0, log.now, log.now))
    log.note(-1, Happened.MARK, mark_of(1, backward=True))
    log.note(-1, Happened.MARK, LAST)
    facts = [CallFacts(call, call - 1 if call else None, shape, ON_DEMAND) for call in range(2)]
    uses = uses_of(log.events, facts)
    use = uses.of_values(0, [(0, 0)])
    assert use == Use(frozenset({(0, 1, 0), (0, 2, 1)}), (0, 2, 1))
    assert uses.of_values(1, [(0, 0)]).until == AFTER and uses.stays((1, 0, 0)) and not uses.stays((0, 0, 0))
    assert [told.where for told in uses.forward if told.gone] == [(0, 2, 2)]
