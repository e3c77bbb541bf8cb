"""Graphs that stay (`retain_graph`): a further backward pass runs again what the last one let go of."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from experiments.recompute.models import Trainee
from runtime.device import limited_memory, memory_stats, reset_peak_memory, use_sim
from runtime.recompute import plan
from runtime.recompute.decisions import Decisions
from runtime.recompute.policy import BlockPolicy, store_nothing
from runtime.recompute.tape import NOTHING, record
from runtime.recompute.walk import Walk
from solvers.ir.errors import InfeasibleBudget
from tests.accelerators import prepared
from tests.runtime.recompute.programs import PROGRAMS
from tests.runtime.recompute.regions import Outcome as Left
from tests.runtime.recompute.regions import StorePolicy, difference, keep, total
from tests.runtime.recompute.regions import trained as trained_region
from tests.runtime.recompute.training import QUICK, Loop, Outcome, ordinary, trained  # noqa: F401 (a fixture reads it)

pytestmark = pytest.mark.usefixtures("quick")
WIDTH = 32


class Scaled(nn.Module):
    """A block of which some operators' results are only read, by operators that autograd asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A feed-forward part, with dropout and a ReLU in place."""
        hidden = nn.functional.relu_(self.up(self.norm(x * 0.5 + 1)) * 2)
        made: torch.Tensor = x + self.down(nn.functional.dropout(hidden, 0.1))
        return made


class Uneven(nn.Module):
    """Blocks that are not alike."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([*(Scaled() for _ in range(3)), *(nn.Linear(WIDTH, WIDTH) for _ in range(2))])
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One after the other."""
        for block in self.blocks:
            x = torch.tanh(block(x))
        found: torch.Tensor = self.head(x)
        return found


def _trainee(device: torch.device, make: Callable[[], nn.Module]) -> Trainee:
    model = make().to(device)
    data = torch.randn(1024, WIDTH).to(device)
    blocks = tuple(next(one for one in model.modules() if isinstance(one, nn.ModuleList)))
    return Trainee(model, blocks, lambda: model(data).square().mean())


class Chain(nn.Module):
    """Six blocks that are alike."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Scaled() for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One after the other."""
        for block in self.blocks:
            x = block(x)
        return x


def two_losses(trainee: Trainee, optimizer: torch.optim.Optimizer, _: int) -> torch.Tensor:
    """Two backward passes of one graph."""
    optimizer.zero_grad()
    loss = trainee.loss()
    (loss * 2).backward(retain_graph=True)  # type: ignore[no-untyped-call]
    loss.square().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()


def for_no_reason(trainee: Trainee, optimizer: torch.optim.Optimizer, _: int) -> torch.Tensor:
    """The graph stays until the step returns; nobody comes back to it."""
    optimizer.zero_grad()
    loss = trainee.loss()
    loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()


def some_gradients_first(trainee: Trainee, optimizer: torch.optim.Optimizer, _: int) -> torch.Tensor:
    """What the last blocks' gradients are weighs the loss, of which all blocks have some then."""
    optimizer.zero_grad()
    loss = trainee.loss()
    last = [one for block in trainee.blocks[-2:] for one in block.parameters()]
    norms = [one.norm() for one in torch.autograd.grad(loss, last, retain_graph=True)]
    (loss / (1 + torch.stack(norms).sum())).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()


class Kept:
    """The loss, with its graph, until the next one is there."""

    def __init__(self) -> None:
        self.loss: torch.Tensor | None = None

    def __call__(self, trainee: Trainee, optimizer: torch.optim.Optimizer, _: int) -> torch.Tensor:
        """One step."""
        optimizer.zero_grad()
        self.loss = trainee.loss()
        self.loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
        optimizer.step()
        return self.loss.detach()


def in_chunks(trainee: Trainee, optimizer: torch.optim.Optimizer, _: int) -> torch.Tensor:
    """Each backward pass goes on through the graphs of the passes before it, one of which was measured, or all."""
    optimizer.zero_grad()
    device = next(trainee.model.parameters()).device
    hidden = torch.linspace(-1, 1, 256 * WIDTH).view(256, WIDTH).to(device)
    for _ in range(4):
        hidden = trainee.model(hidden)
        loss = hidden.square().mean()
        loss.backward(retain_graph=True)
    optimizer.step()
    return loss.detach()  # type: ignore[no-any-return]


def _within(budget: int, device: torch.device, loop: Loop) -> Loop:
    """On a device of the budget's size from the second step on."""

    def limited(trainee: Trainee, optimizer: torch.optim.Optimizer, index: int) -> torch.Tensor:
        if not index:
            return loop(trainee, optimizer, index)
        with limited_memory(device, budget):
            return loop(trainee, optimizer, index)

    return limited


def _planned(loop: Loop, make: Callable[[], nn.Module], share: float, solver: str | None) -> tuple[Outcome, Outcome]:
    device = prepared("sim")
    free = trained(device, partial(_trainee, make=make), loop=loop)
    budget = int(share * max(free.peaks))
    kept = trained(
        device, partial(_trainee, make=make), loop=_within(budget, device, loop), budget=budget, solver=solver,
        around=True,
    )  # fmt: skip
    return free, kept


@pytest.mark.parametrize(("make", "solver"), [(Chain, None), (Chain, "greedy-joint"), (Uneven, None), (Uneven, "opt")])
@pytest.mark.parametrize("loop", [two_losses, for_no_reason, some_gradients_first])
def test_budgets_are_kept_that_plain_training_does_not_fit(
    loop: Loop, make: Callable[[], nn.Module], solver: str | None
) -> None:
    """All that ran again used to stay until the last backward pass: no plan took less than plain training."""
    free, kept = _planned(loop, make, 0.75, solver)
    assert kept.equals(free)
    assert kept.session is not None
    report = kept.session.report()
    assert report.within_budget and report.replanned == 0
    assert report.predicted_pass_us is None and report.host_bytes == 0


def test_a_walk_takes_what_all_backward_passes_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """The measured step stores nothing; under policies at random each step's peak is the walk's, or just below it."""
    device, rng = prepared("sim"), random.Random(5)
    trainee = _trainee(device, Chain)
    optimizer = torch.optim.SGD(trainee.model.parameters(), lr=1e-3)
    ordered, chosen = Decisions.policies, list[BlockPolicy]()
    monkeypatch.setattr(Decisions, "policies", lambda self: chosen or ordered(self))
    with plan(trainee.model, budget="1GiB") as session:
        for index in range(3):
            two_losses(trainee, optimizer, index)
        for _ in range(8):
            stores = [layer.storing([rng.choice([0, 0, 1, 2]) for _ in layer.names]) for layer in session.layers]
            chosen[:] = [BlockPolicy(replace(store, most_bytes=None), {}, {}) for store in stores]
            two_losses(trainee, optimizer, 3)
            optimizer.zero_grad()
            reset_peak_memory(device)
            beyond = memory_stats(device).allocated_bytes - session.plans.measured_level_bytes
            two_losses(trainee, optimizer, 4)
            assert session.plans.footprint is not None
            walked = session.plans.footprint.walk(chosen).peak_bytes
            peak = memory_stats(device).peak_bytes - beyond
            assert peak <= walked <= 1.1 * peak


def test_a_loss_that_is_kept_until_the_next_one_is_no_pass_under_way() -> None:
    """Nothing used to be planned, as no pass began after all earlier ones were gone."""
    device = prepared("sim")
    free = trained(device, partial(_trainee, make=Chain), loop=Kept(), steps=8)
    budget = int(0.8 * max(free.peaks))
    kept = trained(
        device, partial(_trainee, make=Chain), loop=_within(budget, device, Kept()), budget=budget, around=True, steps=8
    )
    assert kept.equals(free)
    assert kept.session is not None and kept.session.report().within_budget


@pytest.mark.parametrize("solver", [None, "greedy-joint"])
def test_graphs_of_measured_passes_that_later_ones_go_back_through(solver: str | None) -> None:
    """They used to tell the next measured pass of calls that it does not know: an `IndexError`."""
    free, kept = _planned(in_chunks, Chain, 0.9, solver)
    assert kept.equals(free)


def test_graphs_of_measured_passes_leave_the_statistics_alone() -> None:
    """What they told when they went began the statistics of planned passes anew: peaks were reported too low."""
    device = prepared("sim")
    trainee = _trainee(device, Chain)
    kept: list[torch.Tensor] = []
    with plan(trainee.model, budget="1GiB"):
        for index in range(6):
            loss = trainee.loss()
            if index > 2:
                reset_peak_memory(device)
                torch.empty(1 << 26, device=device).zero_()
            kept[:] = [loss]
            assert index <= 2 or memory_stats(device).peak_bytes >= 1 << 26
            loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
            trainee.model.zero_grad()


def test_what_ran_again_for_a_backward_pass_that_failed_goes_with_the_next_pass() -> None:
    """It used to stay, and its tape to be unfinished, until another backward pass came."""
    device, blocks = torch.device("cpu"), [Scaled() for _ in range(3)]

    def fail(_: torch.Tensor) -> None:
        raise ValueError

    with Walk(blocks, device, store_nothing(len(blocks))) as walk:
        made = [nn.Sequential(*blocks)(torch.ones(8, WIDTH))]
        tape, handle = walk.calls[1].tape, blocks[1].up.bias.register_hook(fail)  # type: ignore[no-untyped-call]
        assert tape is not None
        before = tape.present_bytes
        with pytest.raises(ValueError):
            made[0].sum().backward(retain_graph=True)
        handle.remove()
        assert tape.present_bytes > before
        again = nn.Sequential(*blocks)(torch.ones(8, WIDTH))
        assert tape.present_bytes == before
        made.clear()
        again.sum().backward()
        assert walk.idle


def test_a_stored_result_stays_beside_another_one_of_its_operator() -> None:
    """One of two used to go, as its reader was looked at after the other one's."""
    given = torch.randn(4, 8, requires_grad=True)
    with record(given.device, keep({0}, 5)) as tape:
        variance, mean = torch.var_mean(given, 1)
        loss = ((variance + 1).exp() * (mean + 1).exp()).sum()
        del variance, mean
    assert None not in tape.held(0)
    tape.begin_retained()
    loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
    tape.end_retained()
    assert len(tape.held(0)) == 2 and None not in tape.held(0)


class Writes(torch.autograd.Function):
    """Its backward pass writes what it saved."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """The same."""
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        """Once."""
        return ctx.saved_tensors[0].zero_() + gradients[0]  # type: ignore[no-any-return]


def test_what_reads_what_a_backward_pass_has_written_stays() -> None:
    """It used to go, and could not run again, where plain training goes on."""
    given = torch.randn(4, 8, requires_grad=True)
    with record(given.device, NOTHING) as tape:
        hidden = given + 1
        written, other = Writes.apply(hidden).sum(), (hidden + 1).exp().sum()  # type: ignore[no-untyped-call]
        del hidden
    tape.begin_retained()
    (written + other).backward(retain_graph=True)
    tape.end_retained()
    (found,) = torch.autograd.grad(other, [given])
    assert torch.equal(found, (given + 1 + 1).exp())


@pytest.mark.parametrize("solver", [None, "greedy-joint", "opt"])
def test_a_budget_that_no_backward_pass_keeps_is_refused_with_one_that_all_do(solver: str | None) -> None:
    least = _least_of(solver)
    share = (least + 4096) / max(trained(prepared("sim"), partial(_trainee, make=Chain), loop=two_losses).peaks)
    assert share < 0.6
    free, kept = _planned(two_losses, Chain, share, solver)
    assert kept.equals(free) and kept.session is not None and kept.session.report().within_budget


def _least_of(solver: str | None) -> int:
    """What a refusal names; its traceback, which holds a model, is gone then."""
    try:
        _planned(two_losses, Chain, 0.2, solver)
    except InfeasibleBudget as error:
        assert error.least_budget_bytes is not None
        return error.least_budget_bytes
    raise AssertionError("a fifth of the memory was enough")


@pytest.mark.parametrize("first", [True, False])
def test_a_pass_that_never_goes_back_counts_in_joint_plans(first: bool) -> None:
    """A critic's target, computed with gradients and read without: its activations are there, too."""

    def with_target(trainee: Trainee, optimizer: torch.optim.Optimizer, index: int) -> torch.Tensor:
        target = trainee.loss() if first else None
        loss = ordinary(trainee, optimizer, index)
        assert target is None or target.requires_grad
        return loss

    device, make = prepared("sim"), partial(_trainee, make=Chain)
    free = trained(device, make, loop=with_target)
    budget = int(0.7 * max(free.peaks))
    within = _within(budget, device, with_target)
    kept = trained(device, make, loop=within, budget=budget, solver="greedy-joint", around=True)
    assert kept.equals(free) and kept.session is not None
    report = kept.session.report()
    assert report.within_budget and report.replanned == 0


def _left_by_two(name: str, policy: StorePolicy | None) -> tuple[Left, list[tuple[int, int]]]:
    """What two backward passes of a region leave, and what its tape held behind the forward and the first of them."""
    torch.manual_seed(7)
    looked_at, region = PROGRAMS[name](torch.device("cpu"))
    held: list[tuple[int, int]] = []
    if policy is None:
        made = region()
        loss = total(made if isinstance(made, tuple) else (made,))
        loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
    else:
        with record(torch.device("cpu"), policy) as tape:
            made = region()
        loss = total(made if isinstance(made, tuple) else (made,))
        before = tape.present_bytes
        tape.begin_retained()
        loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
        tape.end_retained()
        held.append((before, tape.present_bytes))
    loss.backward()  # type: ignore[no-untyped-call]
    left = Left(states=[one.detach().clone() for one in looked_at], gradients=[one.grad for one in looked_at])
    return left, held


@pytest.mark.parametrize("name", PROGRAMS)
def test_regions_of_all_kinds_go_backward_twice(name: str) -> None:
    """Gradients are equal, and what a tape holds after the first backward pass is what it held before it, at most."""
    use_sim(races="raise")
    nodes = len(trained_region(PROGRAMS[name], torch.device("cpu"), NOTHING, steps=1).names)
    try:
        plain, _ = _left_by_two(name, None)
    except RuntimeError:
        pytest.skip("plain training does not go backward twice")
    every_other = keep(set(range(0, nodes, 2)), nodes)  # also what nobody read before something runs again
    for policy in (NOTHING, every_other, keep(set(range(0, nodes, 3)), nodes, what=1)):
        left, held = _left_by_two(name, policy)
        assert difference(plain, left) is None
        if policy is not every_other:
            assert all(after <= before for before, after in held)
