"""Models and loops that an outsider brought: each lost bits, or was refused, without a word of why.

One file: they share odd models, and the loops that train them.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from threading import Thread

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.optim.optimizer import Optimizer

from runtime.device import SimDevice
from runtime.layout import report, unwrap, wrap
from runtime.layout.chunk import Chunk
from runtime.layout.gradients import Gradients
from runtime.layout.updates import Updates
from solvers.ir.errors import InvalidInput
from solvers.ir.layout import Policy
from tests.runtime.layout.models import Language, loss_of
from tests.runtime.layout.training import Layouts, adamw, plain_loop, train_plainly, trained

POLICIES: tuple[tuple[Policy, ...], ...] = (("checkpoint",), ("keep", "checkpoint"), ("keep",))


class Norms(nn.Module):
    """Running statistics, a spectral norm's vectors, an average: buffers that every forward pass writes."""

    average: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = spectral_norm(nn.Linear(32, 32)), nn.BatchNorm1d(16)
        self.register_buffer("average", torch.zeros(32))

    def forward(self, hidden: Tensor) -> Tensor:
        change: Tensor = self.norm(self.layer(hidden))
        self.average = 0.9 * self.average + 0.1 * change.detach().mean((0, 1))
        return torch.addcmul(hidden, change, 1 + self.average)


class Tied(nn.Module):
    """A buffer in two modules and a view of it, one that is None at first, and one of inference mode."""

    cache: Tensor
    seen: Tensor | None
    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.other = nn.Linear(32, 32), nn.Linear(32, 32)
        self.register_buffer("cache", torch.zeros(2, 32, device="sim"))
        self.other.register_buffer("cache", self.cache)
        self.register_buffer("seen", None)
        self.row = self.cache[0]
        with torch.inference_mode():
            self.register_buffer("shift", torch.ones(32, device="sim"))

    def forward(self, hidden: Tensor) -> Tensor:
        change: Tensor = self.layer(hidden + self.shift)
        self.cache.copy_(change.detach().mean((0, 1)))
        self.seen = torch.ones_like(self.row) if self.seen is None else self.seen + 1
        return hidden + torch.tanh(self.other(change) * (self.row + self.other.get_buffer("cache") + self.seen)[0])


class Recurrent(nn.Module):
    """A recurrent net, which keeps weak references to its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.GRU(32, 32, batch_first=True)

    def forward(self, hidden: Tensor) -> Tensor:
        result: Tensor = hidden + self.net(hidden)[0]
        return result


class Skipped(nn.Module):
    """Stochastic depth: half of the blocks hand on what they are given, and use no parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 32)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden if torch.rand(()) < 0.5 else hidden + torch.tanh(self.layer(hidden))


class Forked(nn.Module):
    """Two streams, so that a block's gradients come at two moments."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = (nn.Sequential(nn.Linear(32, 64), nn.Linear(64, 32)) for _ in range(2))

    def forward(self, hidden: Tensor | tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        first, second = hidden if isinstance(hidden, tuple) else (hidden, 2 * hidden)
        return first + self.one(second), self.other(first)


class Summed(nn.LayerNorm):
    """What a language model has behind its blocks, of one stream or two."""

    def forward(self, hidden: Tensor | tuple[Tensor, Tensor]) -> Tensor:
        return super().forward(hidden[0] + hidden[1] if isinstance(hidden, tuple) else hidden)


def of(block: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """A language model of such blocks; a recurrent net stands outside them, too."""

    def make() -> nn.Module:
        model = Language(0)
        model.blocks = nn.ModuleList(block() for _ in range(4))
        model.add_module("norm", block() if block is Recurrent else Summed(32))
        return model

    return make


ODD = [(Norms, 20_000), (Tied, 20_000), (Recurrent, 20_000), (Forked, 9_000)]


@pytest.mark.parametrize(("block", "chunk_bytes"), ODD)
def test_odd_blocks_train_alike(sim: SimDevice, block: Callable[[], nn.Module], chunk_bytes: int) -> None:
    layouts = Layouts(of(block), chunk_bytes)
    plain = train_plainly(layouts.make)
    for seed in range(3):
        for policies in POLICIES:
            trained_so = layouts.train(layouts.random_plan(seed, policies), departs=block is Recurrent)
            assert trained_so.same_as(plain), (seed, policies)


@pytest.mark.parametrize("block", [Norms, Tied, Skipped])
def test_measuring_the_first_forward_changes_nothing(sim: SimDevice, block: Callable[[], nn.Module]) -> None:
    make = of(block)
    torch.manual_seed(0)
    model = make()
    optimizer = adamw(list(model.parameters()))
    wrap(model, optimizer, budget="1GiB", host_budget="1GiB")
    torch.manual_seed(1)
    assert trained(model, plain_loop(model, optimizer)).same_as(train_plainly(make))


def test_a_peak_above_the_budget_is_told(sim: SimDevice) -> None:
    """A loss outside the model keeps what the first forward did not show."""
    model = Language()
    optimizer = adamw(list(model.parameters()))
    wrap(model, optimizer, budget="1GiB", host_budget="1GiB")
    plain_loop(model, optimizer)
    told = report(model)
    assert "above the budget" not in str(told)
    budget = told.problem.device_bytes
    assert f"above the budget of {budget}: give wrap a step" in str(replace(told, peak_bytes=budget + 1))


def test_the_first_step_above_the_budget_is_told_in_a_warning(sim: SimDevice, caplog: pytest.LogCaptureFixture) -> None:
    """Where the plan is given, no other layout is made; steps within the budget, and later ones, say nothing."""
    model = Language(width=64)
    optimizer = adamw(list(model.parameters()))

    def train(rows: int) -> None:
        optimizer.zero_grad()
        model(torch.zeros(rows, 16, dtype=torch.int64, device="sim")).square().mean().backward()
        optimizer.step()

    wrap(model, optimizer, budget="3MiB", host_budget="1GiB")
    train(4)
    plan = report(model).plan
    wrap(unwrap(model), optimizer, budget="3MiB", host_budget="1GiB", plan=plan)
    train(4)
    train(4)
    told = report(model)
    assert told.peak_bytes <= told.problem.device_bytes and not caplog.messages
    for rows in (64, 64, 128):
        train(rows)
    assert report(model).peak_bytes > told.problem.device_bytes and not report(model).again
    (warning,) = caplog.messages
    assert warning.startswith("a step took ")
    assert warning.endswith("measured; give wrap a step with its loss, of the largest batch")


def penalizing(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    """A penalty on the parameters themselves, whose gradients come to them in another of autograd's threads."""
    losses = []
    for number in range(4):
        loss = loss_of(model, number)
        for one in model.parameters():
            loss = loss + 0.01 * one.abs().sum().to(loss.device)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach().cpu())
    return losses


def test_a_penalty_on_parameters_loses_no_gradient(sim: SimDevice) -> None:
    layouts = Layouts(Language)
    plain = train_plainly(Language, loop=penalizing)
    for seed in range(8):  # whose thread comes first is chance
        assert layouts.train(layouts.random_plan(seed), penalizing, overlap=seed % 2 == 0).same_as(plain), seed
    model, optimizer = layouts.wrapped(layouts.random_plan(0))
    penalizing(model, optimizer)
    assert "gradients come to parameters from outside the model" in str(report(model))


def test_a_penalty_waits_while_gradients_are_sent(sim: SimDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    send, outside = Gradients._send, Updates.outside
    sending: list[Chunk] = []
    met: list[bool] = []

    def slowly(self: Gradients, chunk: Chunk) -> None:
        sending.append(chunk)
        send(self, chunk)
        time.sleep(0.02)  # a penalty's thread would come meanwhile
        sending.clear()

    def told(self: Updates, chunk: Chunk) -> None:
        met.append(bool(sending))
        outside(self, chunk)

    monkeypatch.setattr(Gradients, "_send", slowly)
    monkeypatch.setattr(Updates, "outside", told)
    layouts = Layouts(Language)
    assert layouts.train(layouts.random_plan(0), penalizing).same_as(train_plainly(Language, loop=penalizing))
    assert set(met) == {False}


def test_training_goes_on_after_a_penalty_raised(sim: SimDevice) -> None:
    layouts = Layouts(Language)
    model, optimizer = layouts.wrapped(layouts.random_plan(1))

    def failing(_: Tensor) -> None:
        time.sleep(0.1)
        raise ValueError("the user's own")

    master = next(one for one in model.parameters() if one.is_cpu)
    loss = loss_of(model, 0)
    hook = master.register_post_accumulate_grad_hook(failing)  # type: ignore[no-untyped-call]
    with pytest.raises(ValueError, match="the user's own"):
        torch.autograd.backward([loss, *(0.01 * one.abs().sum() for one in model.parameters())])
    hook.remove()
    optimizer.zero_grad()
    going_on = Thread(target=penalizing, args=(model, optimizer), daemon=True)
    going_on.start()
    going_on.join(60)
    assert not going_on.is_alive()


@pytest.mark.parametrize("done", ["frozen", "unfrozen", "replaced"])
def test_parameters_that_change_their_kind_are_refused(sim: SimDevice, done: str) -> None:
    def make() -> nn.Module:
        model = Language()
        model.blocks[0].requires_grad_(done != "unfrozen")
        return model

    layouts = Layouts(make)
    model, optimizer = layouts.wrapped(None)
    plain_loop(model, optimizer, 1)
    assert isinstance(model, Language)
    if done == "replaced":
        model.blocks[0].norm.bias = nn.Parameter(torch.ones(32))  # type: ignore[union-attr]
    else:
        model.blocks[0].requires_grad_(done == "unfrozen")
    with pytest.raises(InvalidInput, match=rf"parameter 'blocks.0.norm.\w+' was {done} after the layout was decided"):
        loss_of(model, 1)


class Sharpness(Optimizer):
    """An optimizer that needs its closure, twice a step."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor]) -> Tensor:  # type: ignore[override]
        with torch.enable_grad():
            loss = closure()
        held = [one for group in self.param_groups for one in group["params"] if one.grad is not None]
        moves = [0.001 * one.grad.sign() for one in held]
        torch._foreach_add_(held, moves)
        with torch.enable_grad():
            closure()
        for one, move in zip(held, moves, strict=True):
            one.sub_(move).sub_(0.01 * one.grad)
        return loss


def with_closures(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    losses = []
    for number in range(3):

        def closure(number: int = number) -> Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, number)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        losses.append(torch.as_tensor(optimizer.step(closure)).detach().cpu())  # type: ignore[arg-type]
    return losses


def test_an_optimizer_may_call_its_closure_several_times(sim: SimDevice) -> None:
    def make(parameters: object) -> Optimizer:
        return Sharpness(list(parameters))  # type: ignore[call-overload]

    layouts = Layouts(Language, make_optimizer=make)
    plain = train_plainly(Language, make, with_closures)
    for seed in range(2):
        assert layouts.train(layouts.random_plan(seed), with_closures).same_as(plain)


def test_lbfgs_is_refused(sim: SimDevice) -> None:
    model = Language()
    with pytest.raises(InvalidInput, match="LBFGS joins all parameters to one vector"):
        wrap(model, torch.optim.LBFGS(model.parameters()), budget="1GiB")
    with pytest.raises(InvalidInput, match="not wrapped"):
        unwrap(model)
