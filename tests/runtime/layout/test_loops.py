"""As people train: whatever a loop does between steps, every bit is that of plain training."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from runtime.device import SimDevice
from runtime.layout import report
from runtime.layout.foreach import PORTIONED, as_on
from solvers.ir.layout import LayoutPlan
from tests.runtime.layout.models import Language, Looking, Repeated, loss_of
from tests.runtime.layout.training import Layouts, Loop, MakeOptimizer, train_plainly
from tests.soaking import some


def stepped(model: nn.Module, optimizer: Optimizer, number: int) -> Tensor:
    loss = loss_of(model, number)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach().cpu()


def accumulating(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    losses = []
    for step in range(3):
        for part in range(3):
            loss = loss_of(model, 3 * step + part) / 3
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach().cpu())
        optimizer.step()
        optimizer.zero_grad()
    return losses


def zeroing(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    losses = []
    for step in range(4):
        model.zero_grad(set_to_none=step % 2 == 0)
        loss = loss_of(model, step)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.detach().cpu())
    return losses


def evaluating(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    """Between steps, and between a forward and its backward."""
    losses = []
    for step in range(3):
        model.eval()
        with torch.no_grad():
            losses.append(loss_of(model, 100 + step).cpu())
        model.train()
        loss = loss_of(model, step)
        with torch.no_grad():
            losses.append(loss_of(model, 200 + step).cpu())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach().cpu())
    return losses


def scheduling(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    losses = []
    for step in range(4):
        losses.append(stepped(model, optimizer, step))
        scheduler.step()
    return losses


def skipping(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    """Gradients of a first backward are thrown away, and two forwards come before their backwards."""
    loss_of(model, 7).backward()  # type: ignore[no-untyped-call]
    optimizer.zero_grad()
    first, second = loss_of(model, 8), loss_of(model, 9)
    first.backward()  # type: ignore[no-untyped-call]
    second.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad()
    return [first.detach().cpu(), second.detach().cpu(), stepped(model, optimizer, 10)]


def retaining(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    """A graph is gone through twice."""
    losses = []
    for step in range(2):
        loss = loss_of(model, step)
        loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
        (2 * loss).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach().cpu())
    return losses


def with_closure(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    losses = []
    for step in range(3):

        def closure(step: int = step) -> Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, step)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        losses.append(torch.as_tensor(optimizer.step(closure)).detach().cpu())  # type: ignore[arg-type]
    return losses


def decaying(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    """Weights decay by hand before each step."""
    losses = []
    for step in range(4):
        loss = loss_of(model, step)
        loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(0.9)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach().cpu())
    return losses


def clamping(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    """Gradients are cut where no version counts it."""
    losses = []
    for step in range(4):
        loss = loss_of(model, step)
        loss.backward()  # type: ignore[no-untyped-call]
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad.data.clamp_(-1e-3, 1e-3)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach().cpu())
    return losses


def shrinking(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    """Weights decay where no version counts it."""
    losses = []
    for step in range(4):
        loss = loss_of(model, step)
        loss.backward()  # type: ignore[no-untyped-call]
        for parameter in model.parameters():
            parameter.data.mul_(0.9)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach().cpu())
    return losses


LOOPS: dict[str, Loop] = {
    "decaying": decaying,
    "clamping": clamping,
    "shrinking": shrinking,
    "accumulating": accumulating,
    "zeroing": zeroing,
    "evaluating": evaluating,
    "scheduling": scheduling,
    "skipping": skipping,
    "retaining": retaining,
    "closure": with_closure,
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_trains_alike(sim: SimDevice, name: str) -> None:
    layouts = Layouts(lambda: Language(tied=True))
    plain = train_plainly(layouts.make, loop=LOOPS[name])
    for seed in (3, 4):
        got = layouts.train(
            layouts.random_plan(seed), LOOPS[name], departs=name in ("evaluating", "skipping", "retaining")
        )
        assert got.same_as(plain), seed


def sgd(parameters: Sequence[nn.Parameter]) -> Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)


def grouped(parameters: Sequence[nn.Parameter]) -> Optimizer:
    """Weights decay, the rest does not."""
    weights = [one for one in parameters if one.ndim > 1]
    others = [one for one in parameters if one.ndim <= 1]
    groups = [{"params": weights, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0, "lr": 1e-3}]
    return torch.optim.AdamW(groups, lr=1e-2, foreach=True)


class Signs(torch.optim.Optimizer):
    """Somebody's own optimizer, which takes each parameter's data."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 1e-3})

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.data.add_(parameter.grad.sign(), alpha=-group["lr"])


class Noisy(torch.optim.Optimizer):
    """Somebody's own optimizer, which makes its states at once and draws random numbers."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 1e-3})
        for parameter in parameters:
            self.state[parameter]["mean"] = torch.zeros_like(parameter)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    mean = self.state[parameter]["mean"].lerp_(parameter.grad, 0.1)
                    noise = 1e-3 * torch.randn(parameter.shape, device="sim").to(parameter.device)
                    parameter.add_(mean + noise, alpha=-group["lr"])


@pytest.mark.parametrize("optimizer", [sgd, grouped, Signs, Noisy])
def test_any_optimizer_trains_alike(sim: SimDevice, optimizer: MakeOptimizer) -> None:
    layouts = Layouts(Language, make_optimizer=optimizer)
    plain = train_plainly(layouts.make, optimizer)
    for seed in (5, 6):
        assert layouts.train(layouts.random_plan(seed)).same_as(plain), seed


@pytest.mark.parametrize("name", some(PORTIONED))
def test_pytorch_s_own_optimizers_train_alike_by_default(sim: SimDevice, name: str) -> None:
    """On a device by operators for many tensors, which NAdam, RAdam and ASGD round otherwise than those for each."""

    def make(parameters: Sequence[nn.Parameter]) -> Optimizer:
        optimizer: Optimizer = getattr(torch.optim, name)(parameters, lr=1e-3)
        return optimizer

    layouts = Layouts(Language, make_optimizer=make)
    plan = layouts.random_plan(5)
    assert 0 < len(plan.persistent) < len(layouts.problem.chunks)
    assert layouts.train(plan).same_as(train_plainly(layouts.make, make))


class Own(nn.Parameter):
    """Somebody's own class of parameters."""


class OwnScale(Language):
    """One parameter of it is of somebody's own class, and gets its gradient last; in every other step if it is told."""

    def __init__(self, *, seldom: bool) -> None:
        super().__init__()
        self.own = Own(torch.ones(64))
        self.seldom, self.calls = seldom, 0

    def forward(self, tokens: Tensor) -> Tensor:
        self.calls += 1
        hidden = self.tokens(tokens) + self.positions
        hidden = hidden if self.seldom and self.calls % 2 else hidden * self.own.mean()
        for block in self.blocks:
            hidden = block(hidden)
        logits: Tensor = self.head(self.norm(hidden))
        return logits


class OwnNAdam(torch.optim.NAdam):
    pass


class OwnRAdam(torch.optim.RAdam):
    pass


class OwnASGD(torch.optim.ASGD):
    pass


class OwnSGD(torch.optim.SGD):
    pass


def test_half_precise_masters_of_an_optimizer_of_an_own_class(sim: SimDevice) -> None:
    """Of those every optimizer rounds otherwise by operators for many tensors."""

    def make(parameters: Sequence[nn.Parameter]) -> Optimizer:
        return OwnSGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.1)

    layouts = Layouts(lambda: Language().to(torch.bfloat16), make_optimizer=make)
    assert layouts.train(layouts.random_plan(0)).same_as(train_plainly(layouts.make, make))


@pytest.mark.parametrize("kind", [OwnNAdam, OwnRAdam, OwnASGD])
def test_an_optimizer_derived_from_one_that_rounds_by_its_operators(sim: SimDevice, kind: type[Optimizer]) -> None:
    def make(parameters: Sequence[nn.Parameter]) -> Optimizer:
        return kind(parameters, lr=1e-2)  # type: ignore[call-arg]

    layouts = Layouts(Language, make_optimizer=make)
    assert layouts.train(layouts.random_plan(0)).same_as(train_plainly(layouts.make, make))
    model, optimizer = layouts.wrapped(layouts.random_plan(0))
    stepped(model, optimizer, 0)
    assert optimizer.param_groups[0]["foreach"] is None


@pytest.mark.parametrize("seldom", [False, True])
@pytest.mark.parametrize("kind", [torch.optim.NAdam, torch.optim.RAdam, torch.optim.ASGD, OwnNAdam])
def test_one_parameter_of_an_own_class_decides_for_its_group(
    sim: SimDevice, kind: type[Optimizer], seldom: bool
) -> None:
    def make(parameters: Sequence[nn.Parameter]) -> Optimizer:
        return kind(parameters, lr=1e-2)  # type: ignore[call-arg]

    layouts = Layouts(lambda: OwnScale(seldom=seldom), make_optimizer=make)
    plan = layouts.random_plan(5)
    assert 0 < len(plan.persistent) < len(layouts.problem.chunks)
    assert layouts.train(plan, departs=True).same_as(train_plainly(layouts.make, make))


def test_the_host_computes_for_each_tensor_where_the_device_does(sim: SimDevice) -> None:
    adam, rate = torch.optim.Adam([nn.Parameter(torch.ones(1))]), torch.tensor(1e-3)
    (group,) = adam.param_groups
    assert as_on(sim.device, adam, group)["foreach"] is True
    for more in ({"foreach": False}, {"fused": True}, {"differentiable": True}, {"lr": rate}):
        assert as_on(sim.device, adam, group | more).get("foreach") is not True
    assert as_on(torch.device("cpu"), adam, group)["foreach"] is None


def clipping(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    """The worst that could happen is a norm of 0, of parameters without gradients."""
    losses = []
    for step in range(4):
        loss = loss_of(model, step)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        assert norm > 0.1
        optimizer.step()
        optimizer.zero_grad()
        losses += [loss.detach().cpu(), norm.cpu()]
    return losses


def test_clipping_sees_every_gradient(sim: SimDevice) -> None:
    layouts = Layouts(Language)
    plan = layouts.random_plan(3)
    plain = train_plainly(layouts.make, loop=clipping)
    none = LayoutPlan(persistent=(), buffers=len(layouts.problem.chunks), policies=plan.policies)
    assert layouts.train(none, clipping).same_as(plain)
    some = LayoutPlan(persistent=(0, 2), buffers=len(layouts.problem.chunks), policies=plan.policies)
    got = layouts.train(some, clipping)
    for one, other in zip(got.losses, plain.losses, strict=True):  # norms of two devices add up in another order
        assert torch.allclose(one, other, rtol=1e-5)


def test_clipping_keeps_updates_behind_backward(sim: SimDevice) -> None:
    layouts = Layouts(Language)
    model, optimizer = layouts.wrapped(layouts.random_plan(3))
    clipping(model, optimizer)
    told = report(model)
    assert not told.overlapping
    assert told.why_not_overlapping is not None and "clipping" in told.why_not_overlapping


def test_updates_run_beside_backward_from_the_second_step_on(sim: SimDevice) -> None:
    layouts = Layouts(Language)
    model, optimizer = layouts.wrapped(layouts.random_plan(3))
    stepped(model, optimizer, 0)
    assert not report(model).overlapping
    stepped(model, optimizer, 1)
    assert report(model).overlapping


def test_blocks_called_twice_or_not_at_all(sim: SimDevice) -> None:
    layouts = Layouts(Repeated)
    plain = train_plainly(layouts.make)
    for seed in range(4):
        assert layouts.train(layouts.random_plan(seed, ("keep", "checkpoint")), departs=True).same_as(plain), seed


def test_a_weight_that_backward_reads_after_its_gradient_came(sim: SimDevice) -> None:
    """Its gradient has taken its place by then, and makes way."""
    layouts = Layouts(Looking)
    plain = train_plainly(layouts.make)
    for seed in range(4):
        assert layouts.train(layouts.random_plan(seed), departs=True, overlap=False).same_as(plain), seed


class Failing(Language):
    """Fails where it is told to."""

    fails = ""

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.tokens(tokens) + self.positions
        for number, block in enumerate(self.blocks):
            if number == 2 and self.fails == "forward":
                raise ArithmeticError("in forward")
            hidden = block(hidden)
            if number == 2 and self.fails == "backward":
                hidden.register_hook(_failing)
        logits: Tensor = self.head(self.norm(hidden))
        return logits


def _failing(gradient: Tensor) -> None:
    raise ArithmeticError("in backward")


def failing(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    """Two steps fail, one in each pass; what they brought is thrown away."""
    assert isinstance(model, Failing)
    losses = []
    for step, fails in enumerate(("forward", "backward", "", "")):
        model.fails = fails
        if fails:
            with pytest.raises(ArithmeticError):
                loss_of(model, step).backward()  # type: ignore[no-untyped-call]
            optimizer.zero_grad()
        else:
            losses.append(stepped(model, optimizer, step))
    return losses


def test_steps_that_fail_leave_no_trace(sim: SimDevice) -> None:
    layouts = Layouts(Failing)
    plain = train_plainly(layouts.make, loop=failing)
    for seed in (1, 2, 3):
        assert layouts.train(layouts.random_plan(seed), failing).same_as(plain), seed
