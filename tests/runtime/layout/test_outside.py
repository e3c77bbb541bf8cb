"""What a program does around a wrapped model: to what it is given, with its modules, in threads, between steps."""

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.utils.checkpoint import checkpoint

from runtime.device import SimDevice
from runtime.layout import report, unwrap, wrap
from solvers.ir.errors import InvalidInput

WIDTH = 64
BUDGET_BYTES = 306_000


class Block(nn.Module):
    """A feed-forward net with a norm and dropout, computed again by a checkpoint of its own if it is told to."""

    def __init__(self, reentrant: bool | None = None) -> None:
        super().__init__()
        self.norm, self.reentrant = nn.LayerNorm(WIDTH), reentrant
        self.inner = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Dropout(0.1), nn.Linear(WIDTH, WIDTH))

    def forward(self, hidden: Tensor) -> Tensor:
        normed = self.norm(hidden)
        again: Any = self.reentrant
        change = self.inner(normed) if again is None else checkpoint(self.inner, normed, use_reentrant=again)
        return hidden + torch.as_tensor(change)


class Net(nn.Module):
    """Blocks between two layers."""

    def __init__(self, reentrant: bool | None = None) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.Sequential(*[Block(reentrant) for _ in range(5)])

    def forward(self, given: Tensor) -> Tensor:
        return torch.as_tensor(self.last(self.blocks(self.first(given))))


class Writing(Net):
    """A net that writes to what it is given."""

    def forward(self, given: Tensor) -> Tensor:
        return super().forward(given.mul_(2).add_(1))


class Helped(Net):
    """A net whose blocks and last layer run in another thread, for which its forward waits."""

    def forward(self, given: Tensor) -> Tensor:
        helper = ThreadPoolExecutor(1)
        try:
            hidden = helper.submit(self.blocks, self.first(given)).result(timeout=20)
            return torch.as_tensor(helper.submit(self.last, hidden).result(timeout=20))
        finally:
            helper.shutdown(wait=False)  # a thread that waits for this forward ends behind it


def data(number: int, rows: int = 32) -> Tensor:
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(number)).to("sim")


def made(
    wrapped: bool, make: Callable[[], nn.Module] = Net, budget: int = BUDGET_BYTES
) -> tuple[Any, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = make()
    if not wrapped:
        model.to("sim")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(1)
    return wrap(model, optimizer, budget=budget) if wrapped else (model, optimizer)


def train(model: Any, optimizer: torch.optim.Optimizer, given: Tensor, run: Any = None) -> list[Tensor]:
    loss = (run or model)(given).square().sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return [loss.detach().cpu()]


def inputs_with_gradients(wrapped: bool) -> list[Tensor]:
    """Of a leaf, of another model, and of a parameter that no model holds."""
    model, optimizer = made(wrapped)
    torch.manual_seed(3)
    before, prompt, seen = nn.Linear(WIDTH, WIDTH).to("sim"), nn.Parameter(torch.ones(WIDTH, device="sim")), []
    for number in range(3):
        leaf = data(number).requires_grad_()
        seen += train(model, optimizer, torch.tanh(before(leaf)) + prompt)
        seen += [one.grad.cpu().clone() for one in (leaf, prompt, before.weight) if one.grad is not None]
    return [*seen, *(one.detach().cpu() for one in model.parameters())]


def written(wrapped: bool) -> list[Tensor]:
    model, optimizer = made(wrapped, Writing)
    given = [data(number) for number in range(3)]
    seen = [loss for one in given for loss in train(model, optimizer, one)]
    return [*seen, *(one.cpu() for one in given)]


def modules_alone(wrapped: bool) -> list[Tensor]:
    """Its modules and blocks called by the program, which its own forward does not run around."""
    model, optimizer = made(wrapped)
    parts = [None, None, lambda one: model.blocks(model.first(one)), lambda one: model.last(one), None]
    seen = [loss for number, part in enumerate(parts) for loss in train(model, optimizer, data(number), part)]
    with torch.no_grad():
        seen.append(model.last(model.blocks[1].inner(model.blocks[2](data(5)))).cpu())
    return [*seen, *(one.detach().cpu() for one in model.parameters())]


def checkpoints(wrapped: bool) -> list[Tensor]:
    model, optimizer = made(wrapped, lambda: Net(reentrant=False))
    seen = [loss for number in range(4) for loss in train(model, optimizer, data(number))]
    return [*seen, *(one.detach().cpu() for one in model.parameters())]


def plain_block() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))


def empty_batches(wrapped: bool) -> list[Tensor]:
    model, optimizer = made(wrapped, lambda: nn.Sequential(*[plain_block() for _ in range(6)]))
    seen = [loss for rows in (32, 0, 32, 0, 8) for loss in train(model, optimizer, data(rows, rows))]
    return [*seen, *(one.detach().cpu() for one in model.parameters())]


def threads(wrapped: bool) -> list[Tensor]:
    """Several evaluate at once."""
    model, optimizer = made(wrapped)
    train(model, optimizer, data(0))
    model.eval()
    found: dict[int, Tensor] = {}

    def evaluate(number: int) -> None:
        with torch.no_grad():
            found[number] = model(data(number)).cpu()

    several = [Thread(target=evaluate, args=(number,)) for number in range(6)]
    for one in several:
        one.start()
    for one in several:
        one.join()
    return [*(found[number] for number in range(6)), *train(model, optimizer, data(7))]


def helpers(wrapped: bool) -> list[Tensor]:
    """Of the model's own, in training and where it is evaluated."""
    model, optimizer = made(wrapped, Helped, 600_000)
    seen = [loss for number in range(3) for loss in train(model, optimizer, data(number))]
    with torch.no_grad():
        seen.append(model(data(3)).cpu())
    return [*seen, *train(model, optimizer, data(4))]


LOOPS = (
    inputs_with_gradients,
    written,
    modules_alone,
    checkpoints,
    empty_batches,
    threads,
    helpers,
)


@pytest.mark.parametrize("loop", LOOPS)
def test_programs_around_a_wrapped_model_train_alike(sim: SimDevice, loop: Callable[[bool], list[Tensor]]) -> None:
    plain, wrapped = loop(False), loop(True)
    assert len(plain) == len(wrapped) and all(map(torch.equal, plain, wrapped))


def test_batches_that_are_empty_at_first_are_measured(sim: SimDevice) -> None:
    model, optimizer = made(True)
    train(model, optimizer, data(0, 0))
    assert report(model).departures == 0


def test_other_parameters_for_a_forward_are_refused(sim: SimDevice) -> None:
    model, optimizer = made(True)
    train(model, optimizer, data(0))
    others = {name: torch.zeros_like(one, device="sim") for name, one in model.named_parameters()}
    with torch.no_grad(), pytest.raises(InvalidInput, match=r"under torch\.func\.functional_call"):
        functional_call(model, others, (data(1),))
    train(model, optimizer, data(2))


def test_hooks_that_come_later_are_refused(sim: SimDevice) -> None:
    for early in (True, False):
        model, optimizer = made(True)
        if not early:
            train(model, optimizer, data(0))
        hook = model.first.weight.register_hook(lambda gradient: gradient)
        with pytest.raises(InvalidInput, match="hooks on its gradient"):
            train(model, optimizer, data(1))
        hook.remove()
        if not early:
            train(model, optimizer, data(2))


def test_copies_are_refused_before_the_first_step_and_after_it(sim: SimDevice) -> None:
    model, optimizer = made(True)
    for _ in range(2):
        for copied in (copy.deepcopy, pickle.dumps):
            with pytest.raises(InvalidInput, match="cannot be copied or pickled"):
                copied(model)
        train(model, optimizer, data(0))
    assert torch.equal(pickle.loads(pickle.dumps(unwrap(model))).first.weight, model.first.weight)


def test_reentrant_checkpoints_transforms_and_lazy_modules_are_refused(sim: SimDevice) -> None:
    model, optimizer = made(True)
    train(model, optimizer, data(0))
    with pytest.raises(InvalidInput, match=r"transform of torch\.func"):
        vmap(model)(data(1))
    model, optimizer = made(True, lambda: Net(reentrant=True))
    with pytest.raises(InvalidInput, match="use_reentrant=False"):
        model(data(0))
    lazy = nn.Sequential(nn.LazyLinear(WIDTH), nn.LazyLinear(WIDTH))
    with pytest.raises(InvalidInput, match="has no shape yet"):
        wrap(lazy, torch.optim.SGD(lazy.parameters(), lr=0.1), budget=BUDGET_BYTES)
