"""Between backward and step: what is updated already is handed to nobody, and what left is waited for."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from experiments.hardware import read_hardware
from runtime.device import SimDevice, use_sim
from runtime.layout import report, unwrap, wrap
from runtime.layout.wrap import WRAPPED
from solvers.ir.errors import InvalidInput
from solvers.ir.layout import LayoutPlan, Policy
from tests.runtime.layout.models import Language, Looking, loss_of
from tests.runtime.layout.test_loops import Failing, Signs, stepped
from tests.runtime.layout.training import ROOM, Layouts, MakeOptimizer, adamw, train_plainly, trained


def away(layouts: Layouts, persistent: tuple[int, ...] = ()) -> LayoutPlan:
    """Every other chunk travels, into a buffer of its own, and activations stay."""
    problem = layouts.problem
    keep: Policy = "keep"
    return LayoutPlan(persistent=persistent, buffers=len(problem.chunks), policies=(keep,) * len(problem.blocks))


@pytest.mark.parametrize("what", ["gradient", "parameter", "updated"])
def test_a_change_that_comes_late_is_refused(sim: SimDevice, what: str) -> None:
    """Two steps change nothing, so that chunks are updated beside backward; the third one decays, or cuts."""
    layouts = Layouts(Language)
    model, optimizer = layouts.wrapped(away(layouts, () if what == "updated" else (0,)))
    for number in range(2):
        stepped(model, optimizer, number)
    loss_of(model, 2).backward()  # type: ignore[no-untyped-call]
    for _, done in model.__dict__[WRAPPED].updates._doing:
        done.wait()  # changed any earlier, what the worker updates is a race, which the device names
    parameter = model.get_parameter(layouts.decided.members[0][0])
    assert parameter.grad is not None
    with torch.no_grad():
        (parameter.grad if what == "gradient" else parameter).mul_(0.9)
    with pytest.raises(InvalidInput, match=r"decay do, so the masters are partly .* wrap again, with overlap_update"):
        optimizer.step()


def test_a_backward_that_fails_beside_updates_is_refused_until_states_are_loaded(sim: SimDevice) -> None:
    layouts = Layouts(Failing)
    model, optimizer = layouts.wrapped(away(layouts))
    assert isinstance(model, Failing)
    for number in range(2):
        stepped(model, optimizer, number)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    model.fails = "backward"
    with pytest.raises(ArithmeticError):
        loss_of(model, 2).backward()  # type: ignore[no-untyped-call]
    model.fails = ""
    for asked in (lambda: loss_of(model, 2), model.state_dict, optimizer.state_dict, optimizer.step):
        with pytest.raises(InvalidInput, match=r"a backward failed after chunks .* unwrap\(model\), load saved states"):
            asked()

    unwrap(model)
    optimizer.zero_grad()
    model.load_state_dict(saved[0])
    optimizer.load_state_dict(copy.deepcopy(saved[1]))  # it trains what it is given
    wrap(
        model, optimizer, budget=ROOM, host_budget=ROOM, plan=away(layouts), profile=layouts.profile, chunk_bytes=20_000
    )
    torch.manual_seed(5)
    got = trained(model, [stepped(model, optimizer, number) for number in range(2, 5)])
    assert report(model).overlapping
    plain = Failing().to("sim")
    known = adamw(list(plain.parameters()))
    plain.load_state_dict(saved[0])
    known.load_state_dict(saved[1])
    torch.manual_seed(5)
    assert got.same_as(trained(plain, [stepped(plain, known, number) for number in range(2, 5)]))


@pytest.mark.parametrize("persistent", [(), (0, 2)])
def test_a_backward_that_brings_no_gradients_updates_nothing(sim: SimDevice, persistent: tuple[int, ...]) -> None:
    """Gradients of the step before still lie there, as where a loop zeroes them before backward."""

    def loop(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
        hidden: list[Tensor] = []
        block = model.get_submodule("blocks.1")
        handle = block.register_forward_hook(lambda module, given, result: hidden.append(result))
        losses = []
        for number in range(4):
            optimizer.zero_grad()
            loss = loss_of(model, number)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            hidden.clear()
            losses += [loss.detach().cpu(), torch.autograd.grad(loss_of(model, 9), hidden[0])[0].cpu()]
        handle.remove()
        return losses

    layouts = Layouts(Language)
    assert layouts.train(away(layouts, persistent), loop).same_as(train_plainly(Language, loop=loop))


@pytest.mark.parametrize("persistent", [(), (0, 2)])
def test_chunks_that_are_updated_whole_are_updated_beside_backward(sim: SimDevice, persistent: tuple[int, ...]) -> None:
    layouts = Layouts(Language)
    model, optimizer = layouts.wrapped(away(layouts, persistent))
    for number in range(2):
        stepped(model, optimizer, number)
    loss_of(model, 2).backward()  # type: ignore[no-untyped-call]
    assert model.__dict__[WRAPPED].updates._updated == set(range(len(layouts.problem.chunks)))
    optimizer.step()


def test_an_update_that_fails_beside_backward_is_refused(sim: SimDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one, after it has changed masters: the loop goes on as if nothing had come."""
    layouts = Layouts(Language)
    model, optimizer = layouts.wrapped(away(layouts, tuple(range(len(layouts.problem.chunks)))))
    for number in range(2):
        stepped(model, optimizer, number)
    updates = model.__dict__[WRAPPED].updates
    step = updates._raw_step

    def fails(shadow: Optimizer) -> None:
        step(shadow)
        raise torch.OutOfMemoryError("in an update")

    with monkeypatch.context() as patched:
        patched.setattr(updates, "_raw_step", fails)
        with pytest.raises(torch.OutOfMemoryError):
            loss_of(model, 2).backward()  # type: ignore[no-untyped-call]
    optimizer.zero_grad()
    for asked in (lambda: loss_of(model, 3), model.state_dict, optimizer.step):
        with pytest.raises(InvalidInput, match="a backward failed after chunks were updated beside it"):
            asked()
    unwrap(model)


@pytest.mark.parametrize("make_optimizer", [adamw, Signs])
@pytest.mark.parametrize("travels", [False, True])
def test_a_block_alone_may_be_read_unless_it_is_updated_already(
    sim: SimDevice, make_optimizer: MakeOptimizer, travels: bool
) -> None:
    """Nobody waits for what it gives, not even the optimizer's step."""
    layouts = Layouts(Language, make_optimizer=make_optimizer)
    everything = tuple(range(len(layouts.problem.chunks)))
    model, optimizer = layouts.wrapped(away(layouts, () if travels else everything))
    block, given = model.get_submodule("blocks.1").eval(), torch.ones(8, 16, 32, device="sim")
    for number in range(2):
        loss = loss_of(model, number)
        with torch.no_grad():
            block(given)
            loss.backward()  # type: ignore[no-untyped-call]
            if number and make_optimizer is adamw:
                with pytest.raises(InvalidInput, match=r"the optimizer's step.*: unwrap\(model\), load saved"):
                    block(given)
            else:
                block(given)
        optimizer.step()
        optimizer.zero_grad()
    unwrap(model)


def test_states_between_backward_and_step_are_refused_once_updates_overlap(sim: SimDevice) -> None:
    layouts = Layouts(Language)
    model, optimizer = layouts.wrapped(away(layouts))
    for number in range(3):
        loss_of(model, number).backward()  # type: ignore[no-untyped-call]
        if number == 2:
            for asked in (model.state_dict, optimizer.state_dict):
                with pytest.raises(InvalidInput, match="between backward and the optimizer's step"):
                    asked()
        optimizer.step()
        optimizer.zero_grad()
        assert model.state_dict() and optimizer.state_dict()
    loss_of(model, 3).backward()  # type: ignore[no-untyped-call]
    unwrap(model)
    assert model.state_dict() and optimizer.state_dict()


def test_states_loaded_between_steps_are_no_change_behind_backward(sim: SimDevice) -> None:
    """With shapes only no update counts a change, so that what an earlier step saw would stay."""
    sim.close()
    device = use_sim(read_hardware("sim-small"), shapes_only=True)
    try:
        layouts = Layouts(Language)
        model, optimizer = layouts.wrapped(away(layouts))
        for number in range(4):
            stepped(model, optimizer, number)
            if number == 2:
                model.load_state_dict(model.state_dict())
        assert report(model).overlapping
        unwrap(model)
    finally:
        device.close()


def test_who_reads_a_chunk_after_its_gradients_left_is_waited_for(sim: SimDevice) -> None:
    """By hand, as where the graph is kept: gradients of their own leave, the chunk is read, and makes way."""
    layouts = Layouts(Language)
    model, _ = layouts.wrapped(away(layouts))
    store = model.__dict__[WRAPPED].store
    first, second = store.chunks[:2]
    store.begin(planned=False)
    store.touch(first)
    for place, slot in enumerate(first.slots):
        first.own[place] = torch.ones(slot.shape, device="sim")
        first.came.add(place)
    store.gradients.leave(first)
    store.touch(first)
    factor = torch.randn(1024, 1024, device="sim")
    reading = factor @ factor  # compute is busy, so that the reader comes late
    seen = first.slots[0].working.detach() * reading[0, 0]
    store._load(second, first)
    store.touch(second)
    sim.synchronize()
    assert seen.isfinite().all()
    store.release()
    store.gradients.settle()


def adding_some(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    """A chunk leaves twice in the second backward: to gradients that are there, then to none."""
    loss_of(model, 0).backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        if name in ("tokens.weight", "positions"):
            parameter.grad = None
    loss_of(model, 1).backward()  # type: ignore[no-untyped-call]
    found = [model.get_parameter("head.weight").grad]
    losses = [one.detach().cpu().clone() for one in found if one is not None]
    assert losses
    optimizer.step()
    optimizer.zero_grad()
    return losses


def test_sums_of_a_chunk_that_leaves_twice_are_waited_for(sim: SimDevice) -> None:
    layouts = Layouts(Looking, 1 << 20)  # one chunk
    plain = train_plainly(layouts.make, loop=adding_some)
    assert len(layouts.problem.chunks) == 1
    assert layouts.train(away(layouts), adding_some, departs=True, overlap=False).same_as(plain)
