"""Steps that are larger than the measured one: the layout is made again, the budget kept, and no bit is another."""

import copy
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.optimizer import Optimizer

from runtime.device import SimDevice, reset_peak_memory
from runtime.layout import report, unwrap, wrap
from runtime.layout.report import LayoutReport
from solvers.ir.errors import InfeasibleBudget, InvalidInput
from tests.runtime.layout.models import Residual
from tests.runtime.layout.training import Trained, adamw, trained

WIDTH, WORDS = 64, 64


class Net(nn.Module):
    """Residual nets between two layers."""

    def __init__(self, out: int = WIDTH) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, out)
        self.blocks = nn.Sequential(*[Residual(WIDTH) for _ in range(5)])

    def forward(self, given: Tensor) -> Tensor:
        return torch.as_tensor(self.last(self.blocks(self.first(given))))


def data(number: int, rows: int) -> Tensor:
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(number)).to("sim")


def growing(model: Any, optimizer: Optimizer) -> Iterator[Tensor]:
    """Batches that grow, shrink, and grow again; rates that a scheduler sets which was made after `wrap`."""
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for number, rows in enumerate((16, 64, 48, 96, 128, 16, 144)):
        loss = model(data(number, rows)).square().mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        yield loss


def accumulating(model: Any, optimizer: Optimizer) -> Iterator[Tensor]:
    """Microbatches of which the second or third is the largest, so that gradients are there already, and clipping."""
    for number in range(4):
        total = torch.zeros(())
        for part, rows in enumerate((16, 16 + 48 * number, 96)):
            loss = model(data(3 * number + part, rows)).square().mean()
            loss.backward()
            total = total + loss.detach().cpu()
        nn.utils.clip_grad_norm_(model.parameters(), 1e9)
        optimizer.step()
        optimizer.zero_grad()
        yield total


def evaluating(model: Any, optimizer: Optimizer) -> Iterator[Tensor]:
    for number, rows in enumerate((32, 96, 128, 32, 160)):
        loss: Any = functional.mse_loss(model(data(number, rows)), data(number + 9, rows))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            yield model(data(number + 20, 24)).square().mean()
        yield loss


def two_at_once(model: Any, optimizer: Optimizer) -> Iterator[Tensor]:
    """Two forwards before their backward passes."""
    for number in range(4):
        one, two = (model(data(2 * number + part, 96)).square().mean() for part in range(2))
        one.backward()
        two.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield one + two


def loss_outside(model: Any, optimizer: Optimizer) -> Iterator[Tensor]:
    """A loss that takes more than what the forward returns."""
    for number in range(4):
        result = model(data(number, 96))
        loss = (result.softmax(-1) * result.log_softmax(-1) + result.sigmoid() * result.tanh()).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def without_backward(model: Any, optimizer: Optimizer) -> Iterator[Tensor]:
    """Forwards whose results nobody keeps, though they may be trained: their graphs are not there any more."""
    for number, rows in enumerate((16, 64, 128, 144)):
        if number:
            model(data(number, 16))
        loss = model(data(number, rows)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def wide() -> nn.Module:
    return Net(4 * WIDTH)


LOOPS: dict[Callable[[Any, Optimizer], Iterator[Tensor]], tuple[Callable[[], nn.Module], int]] = {
    growing: (Net, 2_200_000),
    accumulating: (Net, 2_200_000),
    evaluating: (Net, 2_200_000),
    without_backward: (Net, 2_200_000),
    two_at_once: (Net, 2_500_000),
    loss_outside: (wide, 2_000_000),
}


SHOWN_BY_A_STEP = two_at_once, loss_outside
"""What no forward shows: the first step may take more."""


def made(budget: int | None = None, make: Callable[[], nn.Module] = Net) -> tuple[Any, Optimizer]:
    torch.manual_seed(0)
    model = make()
    if budget is None:
        model.to("sim")
    optimizer = adamw(list(model.parameters()))
    if budget is not None:
        wrap(model, optimizer, budget=budget, host_budget="1GiB")
    torch.manual_seed(1)
    return model, optimizer


def run(
    loop: Callable[[Any, Optimizer], Iterator[Tensor]], budget: int | None, make: Callable[[], nn.Module]
) -> tuple[Trained, list[Tensor], list[int], LayoutReport | None]:
    """What is trained, the optimizer's states, each step's peak, and the report where there is a layout."""
    model, optimizer = made(budget, make)
    losses, peaks = [], []
    for loss in loop(model, optimizer):
        losses.append(loss.detach().cpu())
        peaks.append(torch.accelerator.max_memory_allocated("sim") if budget is None else report(model).peak_bytes)
        reset_peak_memory(torch.device("sim", 0))
    states = [one.cpu().clone() for parameter in model.parameters() for one in optimizer.state[parameter].values()]
    told = None if budget is None else report(model)
    return trained(model, losses), states, peaks, told


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_larger_steps_keep_the_budget_and_every_bit(
    sim: SimDevice, loop: Callable[[Any, Optimizer], Iterator[Tensor]]
) -> None:
    make, budget = LOOPS[loop]
    plain, plain_states, before, _ = run(loop, None, make)
    gc.collect()
    result, states, peaks, told = run(loop, budget, make)
    shown = slice(1, None) if loop in SHOWN_BY_A_STEP else slice(None)
    assert told is not None and told.again and max(peaks[shown]) <= budget < max(before)
    assert result.same_as(plain)
    assert all(map(torch.equal, states, plain_states))


def train(model: Any, optimizer: Optimizer, number: int, rows: int, run: Any = None) -> Tensor:
    loss: Tensor = (run or model)(data(number, rows)).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach().cpu()


def test_a_step_that_no_layout_keeps_is_refused_and_smaller_ones_go_on(sim: SimDevice) -> None:
    model, optimizer = made()
    plain = trained(model, [train(model, optimizer, number, rows) for number, rows in enumerate((16, 48, 48))])
    model, optimizer = made(1_700_000)
    losses = [train(model, optimizer, number, rows) for number, rows in enumerate((16, 48))]
    with pytest.raises(InfeasibleBudget, match=r"given 512 x 64, more than .* the layout is as before") as refused:
        model(data(9, 512))
    assert refused.value.least_budget_bytes is not None and refused.value.least_budget_bytes > 1_700_000
    losses.append(train(model, optimizer, 2, 48))
    assert trained(model, losses).same_as(plain)


def test_what_no_layout_keeps_beside_the_model_is_told_and_takes_the_least(
    sim: SimDevice, caplog: pytest.LogCaptureFixture
) -> None:
    """What a step was seen to take beside the model may be less in another layout: nothing is refused for it."""
    budget = 1_450_000
    plain, *_ = run(loss_outside, None, wide)
    gc.collect()
    result, _, peaks, told = run(loss_outside, budget, wide)
    assert told is not None and told.budget_bytes == budget < told.problem.device_bytes
    assert max(peaks[1:]) < peaks[0] and result.same_as(plain)
    assert sum("no layout keeps the budget" in message for message in caplog.messages) == 1


def test_states_saved_and_loaded_around_another_layout(sim: SimDevice) -> None:
    """Of the model and of the optimizer, with what a plain loop saves and loads at the same steps."""
    ends = []
    for budget in (None, 2_200_000):
        model, optimizer = made(budget)
        train(model, optimizer, 0, 16)
        train(model, optimizer, 1, 96)
        saved = [copy.deepcopy(one.state_dict()) for one in (model, optimizer)]
        train(model, optimizer, 2, 128)
        model.load_state_dict(saved[0])
        optimizer.load_state_dict(saved[1])
        ends.append(trained(model, [train(model, optimizer, number, rows) for number, rows in ((2, 128), (3, 144))]))
        assert budget is None or len(report(model).again) >= 2
        del model, optimizer, saved
        gc.collect()
    assert ends[0].same_as(ends[1])


def test_a_forward_that_the_program_put_around_ours_stays(sim: SimDevice) -> None:
    """As libraries do that compute in another type: in the first step, and where the layout is made again."""
    ends = []
    for budget in (None, 3_200_000):
        model, optimizer = made(budget)
        model.forward = torch.autocast("sim", dtype=torch.bfloat16)(model.forward)
        ends.append(trained(model, [train(model, optimizer, number, rows) for number, rows in ((0, 16), (1, 96))]))
        assert budget is None or report(model).again
        del model, optimizer
        gc.collect()
    assert ends[0].same_as(ends[1])


def test_a_graph_from_before_another_layout_is_refused(sim: SimDevice) -> None:
    """Of blocks that the program calls by themselves: those of a forward keep the layout as it is."""
    model, optimizer = made(1_900_000)
    train(model, optimizer, 0, 16)
    kept = model(data(1, 16)).square().mean()
    train(model, optimizer, 2, 96)
    assert not report(model).again
    kept.backward()
    optimizer.step()
    aside = model.blocks(data(3, 16)).square().mean()
    train(model, optimizer, 4, 96)
    assert report(model).again
    with pytest.raises(InvalidInput, match="from before the layout was made again"):
        aside.backward()


def larger_while_one_waits(model: Any, optimizer: Optimizer) -> Iterator[Tensor]:
    """What these take more than was measured is not beside the model."""
    before = None
    for number, rows in enumerate((16, 64, 48, 96, 128)):
        loss = model(data(number, rows)).square().mean()
        if before is not None:
            before.backward()
        before = loss
        if number % 2:
            loss.backward()
            before = None
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def held(what: Callable[[Any], Any]) -> Callable[[Any, Optimizer], Iterator[Tensor]]:
    def loop(model: Any, optimizer: Optimizer) -> Iterator[Tensor]:
        yield train(model, optimizer, 0, 16)
        kept = what(model)
        for number in range(2):
            added: Any = model.first.weight.square().sum() if kept is None else torch.zeros(())
            loss: Any = model(data(number + 1, 96)).square().mean() + added.to("sim")
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            yield loss
        yield from (one for one in kept or () if isinstance(one, Tensor))

    return loop


HELD: dict[str, Callable[[Any], Any]] = {
    "states": lambda model: list(model.state_dict().values()),
    "references": lambda model: [weakref.ref(one) for one in model.parameters()],
    "penalty": lambda model: None,
}


def test_larger_ones_while_one_waits_show_nothing_beside(sim: SimDevice) -> None:
    plain, *_ = run(larger_while_one_waits, None, Net)
    gc.collect()
    result, *_, told = run(larger_while_one_waits, 2_200_000, Net)
    assert told is not None and told.again and result.same_as(plain)


@pytest.mark.parametrize("what", HELD)
def test_nothing_moves_that_the_program_holds(sim: SimDevice, caplog: pytest.LogCaptureFixture, what: str) -> None:
    """States that share masters' memory, weak references, and penalties that are made before the forward."""
    loop = held(HELD[what])
    plain, plain_states, *_ = run(loop, None, Net)
    gc.collect()
    result, states, _, told = run(loop, 2_200_000, Net)
    assert told is not None and not told.again and result.same_as(plain)
    assert all(map(torch.equal, states, plain_states))
    assert sum("the layout stays as it is while" in message for message in caplog.messages) == 1


def test_gradients_that_the_program_keeps_are_there_in_another_layout(sim: SimDevice) -> None:
    model, optimizer = made(2_200_000)
    model(data(0, 16)).square().mean().backward()
    assert report(model).plan.persistent
    kept = [one.grad for one in model.parameters()]
    before = [one.cpu().clone() for one in kept]
    optimizer.step()
    optimizer.zero_grad()
    model(data(1, 96))
    assert report(model).again and all(torch.equal(one.cpu(), two) for one, two in zip(kept, before, strict=True))


def test_a_given_plan_stays(sim: SimDevice) -> None:
    model, optimizer = made(1_300_000)
    train(model, optimizer, 0, 16)
    plan = report(model).plan
    unwrap(model)
    wrap(model, optimizer, budget=1_300_000, host_budget="1GiB", plan=plan)
    train(model, optimizer, 0, 16)
    train(model, optimizer, 1, 96)
    told = report(model)
    assert not told.again and told.peak_bytes > told.budget_bytes


def test_larger_ones_that_fit_need_no_other_layout(sim: SimDevice) -> None:
    model, optimizer = made(64 << 20)
    for number, rows in enumerate((16, 64, 96)):
        train(model, optimizer, number, rows)
    assert not report(model).again
