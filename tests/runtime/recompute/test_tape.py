"""What a tape promises beside equal results: memory, errors, several backward passes, streams, and its end.

One file: each test is short, and all are about one class.
"""

import gc
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from runtime.device import use_sim
from runtime.device.native import core
from runtime.recompute.tape import EVERYTHING, NOTHING, StorePolicy, Tape, record
from tests.runtime.recompute.programs import Block
from tests.runtime.recompute.regions import backward, gradient, same, without_collector

pytestmark = pytest.mark.usefixtures("plain_sim")
CPU = torch.device("cpu")
POLICIES = [EVERYTHING, NOTHING]


@pytest.fixture
def sim() -> torch.device:
    """A device of 64 MiB on which every race is an error."""
    return use_sim(races="raise", capacity_bytes=64 << 20).device


def in_use() -> int:
    """Bytes of the device that tensors hold."""
    return int(torch.accelerator.memory_stats("sim")["allocated_bytes.all.current"])


def highest() -> int:
    """The most that it was since the last call."""
    peak = int(torch.accelerator.memory_stats("sim")["allocated_bytes.all.peak"])
    torch.accelerator.reset_peak_memory_stats("sim")
    return peak


class Memory:
    """What a step of four blocks takes: after the forward pass, at its peak, and what it leaves behind."""

    def __init__(self, device: torch.device, policy: StorePolicy | None) -> None:
        torch.manual_seed(0)
        blocks = [Block(64).to(device) for _ in range(4)]
        x = torch.randn(4, 32, 64, device=device)
        before = in_use()
        highest()
        hidden, ends = x, []
        for block in blocks:
            if policy is None:
                hidden = block(hidden)
                continue
            with record(device, policy) as tape:
                hidden = block(hidden)
            ends.append(weakref.ref(tape, lambda _: None))
            del tape
        self.after_forward = in_use() - before
        backward(hidden.sum())
        del hidden
        gradients = sum(p.numel() * p.element_size() for block in blocks for p in block.parameters())
        self.peak, self.left = highest() - before, in_use() - before - gradients
        self.alive = sum(end() is not None for end in ends)


def test_memory_goes_down_and_nothing_stays_without_a_collector(sim: torch.device) -> None:
    with without_collector():
        plain, whole, nothing = (Memory(sim, policy) for policy in (None, EVERYTHING, NOTHING))
    assert (whole.left, nothing.left) == (plain.left, plain.left)
    assert (whole.alive, nothing.alive) == (0, 0)
    assert plain.after_forward <= whole.after_forward <= plain.after_forward * 1.05
    inputs = 4 * 4 * 32 * 64 * 4  # of four blocks
    assert nothing.after_forward <= inputs * 1.5
    assert nothing.peak < plain.peak * 0.7
    assert whole.peak <= plain.peak * 1.05


@pytest.mark.parametrize("policy", POLICIES)
def test_a_loss_that_nobody_takes_backward_lets_go_of_everything(policy: StorePolicy, sim: torch.device) -> None:
    block, x = Block(32).to(sim), torch.randn(2, 8, 32, device=sim)
    before = in_use()
    with without_collector():
        with record(sim, policy) as tape:
            hidden = block(x)
        end = weakref.ref(tape)
        del tape
        assert in_use() > before
        loss = hidden.square().mean()
        del hidden, loss
        assert (in_use(), end()) == (before, None)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_part_of_the_results_goes_backward_and_the_rest_is_let_go(policy: StorePolicy, sim: torch.device) -> None:
    x = torch.randn(64, 64, device=sim, requires_grad=True)
    with without_collector():
        with record(sim, policy) as tape:
            one, other = x.exp().sin().exp(), x.cos().exp().sin()
        backward(other.sum())
        ended = [tape.finished]
        del one
        ended.append(tape.finished)
        assert ended == [False, True]
        assert tape.present_bytes == 0


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_backward_twice_and_gradients_of_gradients(policy: StorePolicy, device: str) -> None:
    """Two backward passes of one graph, then gradients of the second order."""

    def gradients(policy: StorePolicy | None) -> list[Tensor]:
        torch.manual_seed(0)
        x = torch.randn(2, 4, 16).to(device).requires_grad_()
        with _recording(device, policy):
            y = x.exp().sin() * x.sigmoid().tanh()
            z = torch.layer_norm(y @ y.mT, (4,)) @ y
        y_sum, weights = z.square().sum(), torch.randn(2, 4, 16).to(device)
        first = torch.autograd.grad(y_sum, x, retain_graph=True)[0]
        again = torch.autograd.grad(y_sum, x, retain_graph=True)[0]
        mixed = torch.autograd.grad(y_sum, x, create_graph=True)[0]
        del y, z, y_sum
        second = torch.autograd.grad((mixed * weights).sum(), x)[0]
        return [first, again, mixed.detach(), second]

    for theirs, ours in zip(gradients(None), gradients(policy), strict=True):
        assert same(theirs, ours)


def _recording(device: str, policy: StorePolicy | None) -> Any:
    place = torch.device(device) if device == "cpu" else torch.device(device, 0)
    return nullcontext() if policy is None else record(place, policy)


WRITES: dict[str, Callable[[Tensor, Tensor, Tensor], object]] = {
    "result": lambda x, y, z: y.add_(1),
    "result, through a view": lambda x, y, z: y.view(-1)[3:].zero_(),
    "last result": lambda x, y, z: z.detach().mul_(2),
    "input": lambda x, y, z: x.detach().mul_(2),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("write", WRITES)
def test_writing_what_was_saved_is_the_error_that_it_is_without_a_tape(write: str, policy: StorePolicy) -> None:
    for chosen in (None, policy):
        x = torch.randn(4, 4, requires_grad=True)
        with _recording("cpu", chosen):
            y = x.sin().exp()
            z = y.tanh()
        with torch.no_grad():
            WRITES[write](x, y, z)
        with pytest.raises(
            RuntimeError, match=r"modified by an inplace operation.*is at version 1; expected version 0"
        ):
            backward(z.sum())


class WritesWhatItSaved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradients[0] * x.mul_(0).add_(2)


def _twice(x: Tensor) -> Tensor:
    doubled: Tensor = WritesWhatItSaved.apply(x)  # type: ignore[no-untyped-call]
    return doubled


@pytest.mark.parametrize("policy", [EVERYTHING, NOTHING])
@pytest.mark.parametrize("alias", [lambda x: x, lambda x: x[:], lambda x: x.detach()[:]])
def test_writing_what_the_same_operator_saved_is_that_error_too(
    alias: Callable[[Tensor], Tensor], policy: StorePolicy
) -> None:
    weight = torch.ones(3, requires_grad=True)
    with record(torch.device("cpu"), policy):
        x = weight.sin()
        loss = x.mul_(alias(x)).sum()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        backward(loss)


@pytest.mark.parametrize("policy", [EVERYTHING, NOTHING])
def test_so_is_a_backward_pass_that_writes_what_others_saved(policy: StorePolicy) -> None:
    weight = torch.ones(3, requires_grad=True)
    with record(torch.device("cpu"), policy):
        x = weight.sin()
        squared = x * x
        loss = _twice(x).sum() + squared.sum()
    with pytest.raises(RuntimeError, match="a backward pass has written what aten::sin made"):
        backward(loss)


@pytest.mark.parametrize("policy", [EVERYTHING, NOTHING])
def test_a_backward_pass_may_write_what_nobody_else_saved(policy: StorePolicy) -> None:
    weight = torch.ones(3, requires_grad=True)
    with record(torch.device("cpu"), policy):
        loss = _twice(weight * 3).sum()
    (found,) = torch.autograd.grad(loss, weight)
    assert torch.equal(found, torch.full((3,), 6.0))


def test_what_the_region_read_and_somebody_changed_later_is_told_by_name() -> None:
    x, average = torch.randn(4, 4, requires_grad=True), torch.ones(4, 4)
    with record(CPU, NOTHING):
        y = (x + average).exp().sin()
    average.add_(1)
    with pytest.raises(RuntimeError, match=r"cannot run aten::add.Tensor again: its argument 1 was changed in place"):
        backward(y.sum())


@pytest.mark.parametrize("policy", POLICIES)
def test_errors_in_the_region_and_in_backward_leave_nothing_behind(policy: StorePolicy, sim: torch.device) -> None:
    x = torch.randn(64, 64, device=sim, requires_grad=True)
    gc.collect()
    before = in_use()
    with without_collector():
        for wrong in (lambda y: y @ torch.ones(3, 3, device=sim), lambda y: y.add_(torch.ones(7, device=sim))):
            with pytest.raises(RuntimeError), record(sim, policy):
                y = x.exp().sin()
                wrong(y.detach())  # type: ignore[no-untyped-call]
            del y
        with record(sim, policy):
            y = x.exp().sin()
            y.register_hook(_raises)  # type: ignore[no-untyped-call]
            z = y.cos()
        with pytest.raises(ValueError, match="a hook's own"):
            backward(z.sum())
        del y, z
        x.grad = None
    for _ in range(1000):  # a traceback holds frames, and autograd's thread the error until it gets to letting go
        gc.collect()
        if in_use() == before:
            break
        time.sleep(0.01)
    torch.accelerator.synchronize("sim")
    assert in_use() == before
    with record(sim, policy) as tape:  # and the next region records as ever
        y = x.exp().sin()
    backward(y.sum())
    assert tape.finished


def _raises(grad: Tensor) -> None:
    raise ValueError("a hook's own")


def test_regions_follow_one_another_and_do_not_nest() -> None:
    x = torch.randn(4, requires_grad=True)
    with record(CPU, NOTHING) as first:
        y = x.exp().sin()
    with record(CPU, NOTHING) as second:
        z = y.cos().exp()
        with pytest.raises(RuntimeError, match="another tape is recording on this thread"), record(CPU, NOTHING):
            pass
        z = z.tanh()
    backward(z.sum())
    assert (len(first), len(second)) == (2, 3)
    expected = torch.autograd.grad(x.exp().sin().cos().exp().tanh().sum(), x)[0]
    assert same(expected, gradient(x))
    assert first.finished
    assert second.finished


def test_nothing_is_kept_of_what_runs_without_gradients() -> None:
    x = torch.randn(4, 4)
    for mode in (torch.no_grad, torch.inference_mode):
        with record(CPU, EVERYTHING) as tape, mode():
            y = x.exp().sin().add_(1)
        assert y is not None
        assert tape.finished
        assert tape.present_bytes == 0


def test_replays_ahead_of_the_backward_pass_leave_none_for_later() -> None:
    x = torch.randn(4, 4, requires_grad=True)
    with record(CPU, NOTHING) as tape:
        y = x.exp().sin().exp().cos()
    expected = torch.autograd.grad(x.exp().sin().exp().cos().sum(), x)[0]
    assert tape.replay(list(range(len(tape)))) == 3  # of the four, cos's result is nobody's
    assert tape.replay(list(range(len(tape)))) == 0
    backward(y.sum())
    assert same(expected, gradient(x))
    assert (tape.replayed_ahead, tape.replayed_on_demand) == (3, 0)


def test_a_dropped_result_comes_back_where_what_it_reads_can() -> None:
    """Nobody saved sin's result: with everything stored its node is forgotten, and who reads it stays."""
    x = torch.randn(4, 4, requires_grad=True)
    with record(CPU, EVERYTHING) as tape:
        y = x.exp().sin().exp().cos()
    tape.drop(list(range(len(tape))))
    assert [node.present for node in tape.nodes] == [False, False, True, False]
    backward(y.sum())
    assert same(torch.autograd.grad(x.exp().sin().exp().cos().sum(), x)[0], gradient(x))
    assert tape.replayed_on_demand == 1


@pytest.mark.parametrize("store", [0, 1, 2, 3])
def test_results_of_one_operator_stay_one_by_one(store: int) -> None:
    """A normalization's output, which only `relu` reads, and its statistics, which autograd saves."""
    x = torch.randn(4, 8, 16, requires_grad=True)
    with record(CPU, StorePolicy([0, store, 0, 0], others=False)) as tape:
        y = functional.group_norm(x.sin(), 2).relu() * 2
    there = {0: [False] * 3, 1: [False, True, True], 2: [True] * 3, 3: [True, False, False]}
    assert held(tape, 1) == there[store]
    tape.drop([1], [(1, 0)])
    assert held(tape, 1) == [store > 1, False, False]
    tape.drop([1])
    assert tape.replay([0, 1], [(1, 0)]) == 2
    assert held(tape, 1) == there[1]
    assert tape.replay([1], [(1, 0)]) == 0
    assert tape.replay([1], [(1, 1), (1, 2)]) == 1
    assert held(tape, 1) == there[2]
    tape.drop([1], [(1, 0)])
    assert held(tape, 1) == there[3]
    assert tape.replay([1, 2]) == 2
    assert held(tape, 1) == there[1], "relu has run: nobody reads the output any more"
    backward(y.sum())
    assert same(torch.autograd.grad((functional.group_norm(x.sin(), 2).relu() * 2).sum(), x)[0], gradient(x))
    assert tape.replayed_on_demand == 0


def held(tape: Tape, node: int) -> list[bool]:
    """Which of a node's results the tape holds; nobody else holds any."""
    return [one is not None for one in tape.held(node)]


def test_a_compiled_part_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo's own graph runs as operators of PyTorch here; inductor's kernels pass no dispatcher."""
    compiled = torch.compile(lambda x: torch.sin(x).exp() * x, backend="aot_eager")
    x = torch.randn(4, 4, requires_grad=True)
    with record(CPU, NOTHING):
        y = compiled(x.exp()).tanh()
    backward(y.sum())
    inner = x.exp()
    expected = torch.autograd.grad((torch.sin(inner).exp() * inner).tanh().sum(), x)[0]
    assert same(expected, gradient(x))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_part_on_a_side_stream(policy: StorePolicy, sim: torch.device) -> None:
    def trained(policy: StorePolicy | None) -> Tensor:
        torch.manual_seed(0)
        x = torch.randn(64, 64).to(sim).requires_grad_()
        side, main = torch.Stream(sim), torch.accelerator.current_stream(sim)
        with _recording("sim", policy):
            y = x.exp().sin()
            side.wait_stream(main)
            with side:
                z = y.cos().exp()
                z.record_stream(main)
                y.record_stream(side)
            main.wait_stream(side)
            w = (z * y).tanh().sin()
        backward(w.sum())
        return gradient(x).cpu()

    assert same(trained(None), trained(policy))


@pytest.mark.parametrize("policy", POLICIES)
def test_backward_on_other_threads(policy: StorePolicy, sim: torch.device) -> None:
    """Each thread has a region, and another one takes its loss backward."""
    from concurrent.futures import ThreadPoolExecutor

    module = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)).to(sim)
    inputs = [torch.randn(4, 8, generator=torch.Generator().manual_seed(n)).to(sim) for n in range(8)]

    def forward(x: Tensor) -> Tensor:
        with record(sim, policy):
            made: Tensor = module(x).sin().exp()
        return made

    def taken(made: Tensor) -> list[Tensor]:
        return [g.cpu() for g in torch.autograd.grad(made.sum(), list(module.parameters()))]

    expected = [taken(module(x).sin().exp()) for x in inputs]
    with ThreadPoolExecutor(3) as forwards, ThreadPoolExecutor(3) as backwards:
        found = list(backwards.map(taken, list(forwards.map(forward, inputs))))
    for theirs, ours in zip(expected, found, strict=True):
        assert all(same(*pair) for pair in zip(theirs, ours, strict=True))


class SquareReadingTwice(torch.autograd.Function):
    """Asks twice for what it saved."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        derived: Tensor = grad * (ctx.saved_tensors[0] + ctx.saved_tensors[0])
        return derived


@pytest.mark.parametrize("policy", POLICIES)
def test_a_saved_tensor_that_is_asked_for_twice(policy: StorePolicy) -> None:
    x = torch.randn(4, 6, requires_grad=True)

    def end() -> Tensor:
        made: Tensor = SquareReadingTwice.apply(x.exp().t()[1:])  # type: ignore[no-untyped-call]
        return made.sum()

    with record(CPU, policy):
        loss = end()
    for _ in range(2):
        expected = torch.autograd.grad(end(), x)[0]
        assert same(expected, torch.autograd.grad(loss, x, retain_graph=True)[0])


def test_something_that_no_operator_told_is_stored() -> None:
    """A collective writes a tensor in place; who reads it must not run its maker again in its place."""
    x = torch.randn(4, 4, requires_grad=True)
    with record(CPU, NOTHING) as tape:
        y = x.exp()
        y.detach().numpy()[:] += 1
        core.note_write(y)
        z = y.sin().exp()
    backward(z.sum())
    with torch.no_grad():
        inner = x.exp() + 1
        expected = inner.sin().exp() * inner.cos() * inner
    assert same(expected, gradient(x))
    assert tape.finished


@pytest.fixture(autouse=True)
def no_gradients_left() -> Iterator[None]:
    """Regions end with their tests."""
    yield
    core.stop_recording()
