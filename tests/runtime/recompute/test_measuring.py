"""Steps that are measured again: the first pass was like no later one, sequences grow, layers are thawed."""

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional

from experiments.recompute.models import Trainee
from runtime.recompute import plan
from runtime.recompute.calls import Given
from runtime.recompute.layer import Layer
from runtime.recompute.measuring import GROWTH, MOST_MEASURED, MOST_STRAYED, Measuring, Occasion
from solvers.ir.errors import InfeasibleBudget
from tests.accelerators import prepared
from tests.runtime.recompute.training import QUICK, Outcome, limited, ordinary, trained

__all__ = ["QUICK"]

WIDTH, ROWS = 32, 512
Make = Callable[[torch.device], Trainee]


class Cached(nn.Module):
    """Attention that makes its mask and its rotation when it is first called, and keeps them."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.kept: tuple[torch.Tensor, torch.Tensor] | None = None

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Causal, of one head, with dropout."""
        if self.kept is None:
            at = torch.arange(hidden.shape[1], device=hidden.device)
            mask = torch.where(at[:, None] < at, float("-inf"), 0.0)
            self.kept = mask, torch.cos(at[:, None] / 10 ** torch.linspace(0, 1, WIDTH, device=hidden.device))
        mask, rotation = self.kept
        query, key, value = self.qkv(hidden).chunk(3, dim=-1)
        weights = ((query * rotation) @ (key * rotation).transpose(1, 2) + mask).softmax(-1)
        return hidden + functional.dropout(self.out(weights @ value), 0.1)


def cached(device: torch.device) -> Trainee:
    blocks = nn.Sequential(*(Cached() for _ in range(4))).to(device)
    data = torch.randn(8, 64, WIDTH).to(device)
    return Trainee(blocks, tuple(blocks), lambda: blocks(data).square().mean())


class Scaled(nn.Module):
    """An activation norm: it begins with the mean and the deviation of the first batch (Glow, 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.begun = nn.Linear(WIDTH, WIDTH), False
        self.mean, self.scale = nn.Parameter(torch.zeros(WIDTH)), nn.Parameter(torch.ones(WIDTH))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """On top of what it is given."""
        found = self.layer(hidden)
        if not self.begun:
            self.begun = True
            with torch.no_grad():
                self.mean.copy_(found.mean(0))
                self.scale.copy_(1 / found.std(0))
        return hidden + functional.gelu((found - self.mean) * self.scale)


def scaled(device: torch.device) -> Trainee:
    blocks = nn.Sequential(*(Scaled() for _ in range(4))).to(device)
    data = torch.randn(4 * ROWS, WIDTH).to(device)
    return Trainee(blocks, tuple(blocks), lambda: blocks(data).square().mean())


def _blocks() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(4))
    )


def longer(device: torch.device) -> Trainee:
    """Twice as many rows from the third pass on."""
    blocks, data, passes = _blocks().to(device), torch.randn(4 * ROWS, WIDTH).to(device), [0]

    def loss() -> torch.Tensor:
        passes[0] += 1
        found: torch.Tensor = blocks(data[: 2 * ROWS if passes[0] < 3 else 4 * ROWS]).square().mean()
        return found

    return Trainee(blocks, tuple(blocks), loss)


class Attending(nn.Module):
    """Attention whose weights are all there, and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.within = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, hidden: torch.Tensor, other: torch.Tensor | None = None) -> torch.Tensor:
        """To itself, or to something else."""
        query, key, value = self.qkv(hidden).chunk(3, dim=-1)
        key, value = (key, value) if other is None else (other, other)
        hidden = hidden + functional.dropout((query @ key.transpose(1, 2)).softmax(-1) @ value, 0.1)
        found: torch.Tensor = hidden + self.within(hidden)
        return found


def fewer_rows(device: torch.device) -> Trainee:
    """As many tokens in fewer, longer rows from the third pass on."""
    blocks, data, passes = nn.Sequential(*(Attending() for _ in range(4))).to(device), torch.randn(32, 32, WIDTH), [0]
    data = data.to(device)

    def loss() -> torch.Tensor:
        passes[0] += 1
        found: torch.Tensor = blocks(data if passes[0] < 3 else data.view(8, 128, WIDTH)).square().mean()
        return found

    return Trainee(blocks, tuple(blocks), loss)


def longer_answers(device: torch.device) -> Trainee:
    """A decoder's sequences are longer from the third pass on, its encoder's are not."""
    blocks = nn.ModuleList(Attending() for _ in range(4)).to(device)
    asked, answers, passes = torch.randn(16, 64, WIDTH).to(device), torch.randn(16, 64, WIDTH).to(device), [0]

    def loss() -> torch.Tensor:
        passes[0] += 1
        read = blocks[1](blocks[0](asked))
        written = answers[:, : 32 if passes[0] < 3 else 64]
        for block in blocks[2:]:
            written = block(written, read)
        return written.square().mean()

    return Trainee(blocks, tuple(blocks), loss)


def towers(device: torch.device) -> Trainee:
    """Two towers of like blocks: pictures are as large as ever, their captions grow to that from the third pass on."""
    blocks, passes = nn.ModuleList(Attending() for _ in range(4)).to(device), [0]
    pictures, captions = torch.randn(16, 64, WIDTH).to(device), torch.randn(16, 60, WIDTH).to(device)

    def loss() -> torch.Tensor:
        passes[0] += 1
        seen, read = blocks[1](blocks[0](pictures)), captions[:, : 16 if passes[0] < 3 else 60].contiguous()
        for block in blocks[2:]:
            read = block(read)
        found: torch.Tensor = (seen.mean(1) * read.mean(1)).sum(-1).square().mean()
        return found

    return Trainee(blocks, tuple(blocks), loss)


def thawed(device: torch.device) -> Trainee:
    """The first half of the blocks trains from the third pass on."""
    blocks, data, passes = _blocks().to(device), torch.randn(4 * ROWS, WIDTH).to(device), [0]
    nn.ModuleList(list(blocks)[:2]).requires_grad_(False)

    def loss() -> torch.Tensor:
        passes[0] += 1
        if passes[0] == 3:
            blocks.requires_grad_(True)
        found: torch.Tensor = blocks(data).square().mean()
        return found

    return Trainee(blocks, tuple(blocks), loss)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("solver", "around"), [("heu", True), ("greedy-joint", False)])
@pytest.mark.parametrize("make", [cached, scaled, longer, thawed])
def test_later_steps_that_are_not_the_first_one_keep_the_budget(make: Make, solver: str, around: bool) -> None:
    """On a device of that size from the second step on; plans for the first step took up to half more."""
    _keeps_budget(make, solver, around)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("make", "solver"),
    [(fewer_rows, "heu"), (fewer_rows, "greedy-joint"), (longer_answers, "greedy-joint"), (towers, "heu")],
)
def test_passes_that_are_larger_inside_keep_the_budget(make: Make, solver: str) -> None:
    """The first of them, too: what its blocks have stored goes. It took up to a third more."""
    _keeps_budget(make, solver, around=True)


def _keeps_budget(make: Make, solver: str, around: bool) -> None:
    device = prepared("sim")
    free = trained(device, make, steps=6)
    budget = int(0.75 * max(free.peaks[1:]))
    kept = trained(device, make, budget=budget, solver=solver, loop=limited(device, budget), around=around, steps=6)
    assert kept.equals(free) and max(kept.peaks[1:]) <= budget
    assert kept.session is not None
    report = kept.session.report()
    assert (report.measured, report.replanned, report.within_budget) == (2, 0, True)
    assert report.plan_peak_bytes <= report.predicted_peak_bytes
    if solver != "heu":
        assert report.pass_us == pytest.approx(report.predicted_pass_us, rel=0.02)


@pytest.mark.usefixtures("quick")
def test_evaluations_with_gradients_of_larger_batches_change_no_plan() -> None:
    """They are measured, and as nothing comes of them what was known stays."""
    device = prepared("sim")

    def step(trainee: Trainee, optimizer: torch.optim.Optimizer, index: int) -> torch.Tensor:
        trainee.model(torch.zeros(8 * ROWS, WIDTH, device=device)) if index > 1 else None
        return ordinary(trainee, optimizer, index)

    def ones(device: torch.device) -> Trainee:
        blocks, data = _blocks().to(device), torch.randn(4 * ROWS, WIDTH).to(device)
        return Trainee(blocks, tuple(blocks), lambda: blocks(data).square().mean())

    free: Outcome = trained(device, ones, loop=step, steps=5)
    kept = trained(device, ones, loop=step, steps=5, budget=int(0.75 * free.peaks[1]), solver="joint", around=True)
    assert kept.equals(free) and kept.session is not None
    report = kept.session.report()
    assert report.measured == 1 and report.diverged == 0


def _layers(*names: str) -> list[Layer]:
    return [Layer(units=(), forward_waits_us=(), backward_waits_us=(), input_bytes=0, names=names)]


def _occasion(given_bytes: int, trainable: int = 4, adds: bool = False) -> Occasion:
    return Occasion(Given(given_bytes, 10 * given_bytes), trainable, adds)


NONE, ONE, BOTH = Counter[int](), Counter((0,)), Counter((0, 1))


def test_what_is_measured_again_and_what_replaces_it() -> None:
    measuring, first = Measuring(), _occasion(100)
    measuring.begin(first)
    assert measuring.end([], _layers("a"), (NONE, ONE))
    assert not measuring.wanted(first, planned=True) and not measuring.wanted(_occasion(90, 4), planned=True)
    assert measuring.wanted(_occasion(101, 4), planned=False), "larger: also in the first step"
    assert measuring.wanted(_occasion(100, 4, adds=True), planned=False)
    assert measuring.wanted(_occasion(100, 5), planned=True) and not measuring.wanted(_occasion(100, 5), planned=False)
    measuring.strayed = True
    assert measuring.wanted(_occasion(90, 4), planned=True)
    measuring.begin(_occasion(90, 4))
    assert measuring.wanted(_occasion(90, 4), planned=True), "until one has had its backward pass: this may be none"
    assert not measuring.end(_layers("a"), _layers("a"), (ONE, ONE)), "the same again"
    assert measuring.known == first and not measuring.wanted(_occasion(90, 4), planned=True)
    measuring.begin(_occasion(90, 4))
    assert measuring.end(_layers("a"), _layers("b"), (ONE, ONE)) and measuring.known == first
    measuring.begin(_occasion(200, 4))
    assert not measuring.end(_layers("b"), _layers("b"), (BOTH, ONE)), "a block was left out by chance"
    assert measuring.known == first
    measuring.begin(_occasion(100, 2))
    assert not measuring.end(_layers("b"), _layers("b"), (BOTH, ONE)), "a block was frozen"
    measuring.begin(_occasion(100, 6))
    assert measuring.end(_layers("b"), _layers("b"), (BOTH, ONE)), "others were thawed"
    assert not measuring.wanted(_occasion(100, 2), planned=True), "a discriminator, frozen for a while"
    for _ in range(MOST_STRAYED - 1):
        measuring.strayed = True
        assert measuring.wanted(_occasion(100, 2), planned=True) and measuring.follows
        measuring.begin(_occasion(100, 2))
        assert measuring.end(_layers("b"), _layers("c"), (ONE, ONE))
    measuring.strayed = True
    assert not measuring.wanted(_occasion(100, 2), planned=True) and not measuring.follows, "every step is another one"
    measuring.times = MOST_MEASURED + 1
    assert not measuring.wanted(_occasion(1000, 9), planned=True)
    adding = Measuring(times=1, known=first)
    adding.begin(_occasion(90, 4, adds=True))
    assert adding.end(_layers("a"), _layers("a"), (ONE, ONE)), "a smaller pass that adds to gradients"
    assert adding.known == _occasion(100, 4, adds=True)


def test_steps_of_fewer_forward_passes_replace_none_of_more() -> None:
    for layers, replaces in ((_layers("b"), False), (_layers("a"), True)):
        measuring = Measuring(times=1, known=_occasion(100))
        measuring.begin(_occasion(90))
        assert measuring.end(_layers("b") * 2, layers, (Counter((0, 0)), ONE)) == replaces
        assert measuring.known == _occasion(100)


def test_growth_inside_is_measured_where_it_may_come_again() -> None:
    """Not in the next pass if that one is given less; nor is a little growth, for which plans are corrected."""
    measuring, small, large = Measuring(), _made(100), _made(300)
    measuring.begin(_occasion(100))
    assert measuring.end([], small, (NONE, ONE))
    assert not measuring.look(strayed=False, growth=GROWTH, given=Given(100, 1000)) and measuring.grown is None
    assert measuring.follows_from(strayed=False, growth=2.0), "the pass stores nothing"
    assert measuring.look(strayed=False, growth=2.0, given=Given(90, 2000)), "and is no reason to plan for less"
    assert not measuring.look(strayed=False, growth=2.0, given=Given(90, 2000)), "the next one is, if none is measured"
    assert not measuring.wanted(_occasion(100), planned=True)
    rows = Occasion(Given(90, 2000), 4)
    assert measuring.wanted(rows, planned=True)
    measuring.begin(rows)
    assert measuring.end(small, large, (ONE, ONE)), "its blocks make more"
    assert not measuring.wanted(rows, planned=True) and not measuring.wanted(_occasion(100), planned=True)
    measuring.look(strayed=False, growth=2.0, given=Given(90, 2000))
    measuring.begin(rows)
    assert not measuring.end(large, small, (ONE, ONE)), "this one was smaller"
    measuring.times = MOST_MEASURED + 1
    assert not measuring.follows_from(strayed=False, growth=2.0)


def _made(size: int) -> list[Layer]:
    return [Layer((), (), (), 0, ("a", "b"), made=(size, 1))]


@pytest.mark.usefixtures("quick")
def test_passes_that_add_to_gradients_are_as_long_as_predicted() -> None:
    """The first pass of a step makes them, all others add to them: a third of a short pass."""
    device = prepared("sim")

    def step(trainee: Trainee, optimizer: torch.optim.Optimizer, _: int) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=False)
        loss = trainee.loss()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()

    free = trained(device, "gpt", loop=step)
    kept = trained(device, "gpt", loop=step, steps=5, budget=int(0.75 * max(free.peaks[1:])), solver="greedy-joint")
    assert kept.session is not None
    report = kept.session.report()
    assert report.measured == 2 and report.within_budget
    assert report.pass_us == pytest.approx(report.predicted_pass_us, rel=0.02)


class Silent(nn.Module):
    """A block that does nothing in the first pass."""

    def __init__(self, passes: list[int]) -> None:
        super().__init__()
        self.within = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.passes = passes

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = hidden if self.passes[0] == 1 else hidden + self.within(hidden)
        return found


def silent(device: torch.device) -> Trainee:
    passes = [0]
    blocks = nn.Sequential(nn.Linear(WIDTH, WIDTH), *(Silent(passes) for _ in range(4))).to(device)
    data = torch.randn(4 * ROWS, WIDTH).to(device)

    def loss() -> torch.Tensor:
        passes[0] += 1
        found: torch.Tensor = blocks(data).square().mean()
        return found

    return Trainee(blocks, tuple(list(blocks)[1:]), loss)


def turned(device: torch.device) -> Trainee:
    """Blocks that are called backwards in every other pass."""
    blocks, passes = _blocks().to(device), [0]
    data = torch.randn(4 * ROWS, WIDTH).to(device)

    def loss() -> torch.Tensor:
        passes[0] += 1
        hidden = data
        for block in reversed(blocks) if passes[0] % 2 else blocks:
            hidden = block(hidden)
        return hidden.square().mean()

    return Trainee(blocks, tuple(blocks), loss)


def turned_adversaries(device: torch.device) -> Trainee:
    """A judge's parameters want gradients in every other pass only."""
    blocks, data, passes = _blocks().to(device), torch.randn(4 * ROWS, WIDTH).to(device), [0]
    judge = nn.ModuleList(list(blocks)[2:])

    def loss() -> torch.Tensor:
        passes[0] += 1
        judge.requires_grad_(passes[0] % 2 == 0)
        found: torch.Tensor = blocks(data).square().mean()
        return found

    return Trainee(blocks, tuple(blocks), loss)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("make", [silent, turned, turned_adversaries])
def test_passes_of_two_kinds_keep_the_budget(make: Make) -> None:
    """Where a plan knows one of them, the other stores nothing that the plan does not know."""
    device = prepared("sim")
    free = trained(device, make, steps=8)
    budget = int(0.8 * max(free.peaks[1:]))
    loop = limited(device, budget)
    kept = trained(device, make, budget=budget, solver="greedy-joint", loop=loop, around=True, steps=8)
    assert kept.equals(free) and kept.session is not None
    report = kept.session.report()
    assert report.within_budget and 1 < report.measured <= 1 + MOST_STRAYED


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("around", [True, False])
def test_a_refused_batch_is_refused_again_and_smaller_ones_train_no_more(around: bool) -> None:
    """What is known is of the larger one; who goes on is told the same, whether within one session or entering anew."""
    device = prepared("sim")
    blocks = _blocks().to(device)
    session, optimizer = plan(blocks, budget="1MiB", blocks=list(blocks)), torch.optim.SGD(blocks.parameters())
    told = []
    with session if around else nullcontext():
        for rows in (64, 64, 4096, 4096, 64):
            try:
                with nullcontext() if around else session:
                    optimizer.zero_grad()
                    blocks(torch.zeros(rows, WIDTH, device=device)).square().mean().backward()
                    optimizer.step()
                told.append("trained")
            except InfeasibleBudget as error:
                told.append(str(error.least_budget_bytes))
    assert told[:3] == ["trained"] * 3 and told[3] == told[4] != "trained"
