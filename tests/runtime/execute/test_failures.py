"""Steps that fail in the middle: the error arrives as what it is, memory is in order, and training can go on."""

import pytest
import torch
from torch import nn

from runtime.device import SimDevice, use_sim
from runtime.device.native import core
from runtime.swap import HostMemoryShort, StepDiffers, SwapExecutor
from solvers.ir.errors import InvalidInput
from solvers.ir.graph import OpGraph
from tests.runtime.execute.training import (
    Move,
    Trainee,
    candidates,
    graph_of,
    plainly,
    schedule_of,
    sensible,
    small,
    train,
    warm,
)


class Interruption(Exception):
    """Something of the user's own."""


def failing_in(trainee: Trainee, phase: str) -> None:
    """A step that raises `Interruption` in that phase."""

    def interrupt(*_: object) -> None:
        raise Interruption

    if phase == "forward":
        handle = list(trainee.model.children())[-1][-1].register_forward_hook(interrupt)  # type: ignore[index]
    elif phase == "backward":
        handle = next(iter(trainee.model.parameters())).register_hook(interrupt)  # type: ignore[no-untyped-call]
    else:
        handle = trainee.optimizer.register_step_pre_hook(interrupt)
    try:
        trainee.step()
    finally:
        handle.remove()


@pytest.mark.parametrize("phase", ["forward", "backward", "optimizer"])
def test_after_an_exception_everything_is_back_and_the_next_step_is_as_planned(
    device: torch.device, phase: str
) -> None:
    graph = graph_of(small, device)
    executor = SwapExecutor(schedule_of(graph, sensible(graph, 1024)), graph, device)
    trainee = warm(small, device)
    in_use = torch.accelerator.memory_allocated()
    with pytest.raises(Interruption):
        executor.run(lambda: failing_in(trainee, phase))
    assert core.swapped_out_storages() == 0
    trainee.optimizer.zero_grad(set_to_none=True)
    assert torch.accelerator.memory_allocated() <= in_use
    assert executor.run(trainee.step).counts.as_planned


def test_training_after_an_exception_has_the_same_bits(device: torch.device) -> None:
    graph = graph_of(small, device)
    executor = SwapExecutor(schedule_of(graph, sensible(graph, 1024)), graph, device)

    def run(trainee: Trainee) -> torch.Tensor:
        random = torch.get_rng_state()
        with pytest.raises(Interruption):
            executor.run(lambda: failing_in(trainee, "backward"))
        torch.set_rng_state(random)
        return executor.run(trainee.step).value

    assert train(small, device, run).equals(train(small, device, plainly))


def test_out_of_memory_in_the_step_stays_out_of_memory(device: torch.device) -> None:
    graph = graph_of(small, device)
    executor = SwapExecutor(schedule_of(graph, sensible(graph, 1024)), graph, device)
    trainee = warm(small, device)
    sim = use_sim(capacity_bytes=1 << 28)

    def short_of_memory() -> None:
        sim.set_capacity(torch.accelerator.memory_allocated() + 20_000)
        trainee.step()

    with pytest.raises(torch.OutOfMemoryError):
        executor.run(short_of_memory)
    sim.set_capacity(1 << 28)
    trainee.optimizer.zero_grad(set_to_none=True)
    assert executor.run(trainee.step).counts.as_planned


class Pinch:
    """Fills the device in the middle of the backward pass, around one tiny operator; idle until `full` is set."""

    def __init__(self) -> None:
        self.full: SimDevice | None = None
        self.lasting = False
        self.hoard: list[torch.Tensor] = []

    def trainee(self, device: torch.device) -> Trainee:
        """Two layers with the pinch between them; the first one's GELU keeps 64 KiB for the backward pass."""
        torch.manual_seed(0)
        layers = nn.ModuleList([nn.Linear(64, 64), nn.Linear(64, 8)]).to(device)
        optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
        data, tiny = torch.randn(256, 64).to(device), torch.zeros(1, device=device)
        pinch = self

        class Squeeze(torch.autograd.Function):
            @staticmethod
            def forward(ctx: torch.autograd.function.FunctionCtx, value: torch.Tensor) -> torch.Tensor:
                return value.view_as(value)

            @staticmethod
            def backward(ctx: torch.autograd.function.FunctionCtx, *grads: torch.Tensor) -> torch.Tensor:
                pinch.fill(device)
                tiny.sin_()
                if not pinch.lasting:
                    pinch.hoard.clear()
                return grads[0]

        def step() -> torch.Tensor:
            optimizer.zero_grad(set_to_none=True)
            inner = Squeeze.apply(nn.functional.gelu(layers[0](data)))  # type: ignore[no-untyped-call]
            loss: torch.Tensor = layers[1](inner).square().mean()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            return loss.detach()

        return Trainee(layers, optimizer, step)

    def fill(self, device: torch.device) -> None:
        """Leaves 1024 bytes free."""
        if self.full is not None:
            room = self.full.capacity_bytes - torch.accelerator.memory_allocated()
            self.hoard.append(torch.empty(room - 1024, dtype=torch.uint8, device=device))

    def executor(self, graph: OpGraph, device: torch.device) -> SwapExecutor:
        """The GELU's input leaves and should come back before the tiny operator."""
        tiny = next(number for number, op in enumerate(graph.ops) if op.name == "aten::sin_")
        move = next(
            Move(tensor.id, last, last + 2, tiny)
            for tensor, last, first in candidates(graph, 65536)
            if first > tiny and graph.ops[last].name == "aten::gelu"
        )
        return SwapExecutor(schedule_of(graph, [move]), graph, device)


def test_a_swap_in_that_finds_no_memory_is_postponed_to_the_use(device: torch.device) -> None:
    pinch = Pinch()
    executor = pinch.executor(graph_of(pinch.trainee, device), device)
    pinch.full = use_sim(capacity_bytes=1 << 24)

    def run(trainee: Trainee) -> torch.Tensor:
        executed = executor.run(trainee.step)
        assert (executed.counts.postponed, executed.counts.fetched, executed.counts.departure) == (1, 1, None)
        assert executed.report.stall_us["on_demand"] > 0
        return executed.value

    assert train(pinch.trainee, device, run).equals(train(pinch.trainee, device, plainly))


def test_out_of_memory_while_fetching_stays_out_of_memory(device: torch.device) -> None:
    """The operator itself can only say that its input is swapped out; the step says why."""
    pinch = Pinch()
    executor = pinch.executor(graph_of(pinch.trainee, device), device)
    trainee = warm(pinch.trainee, device)
    pinch.full, pinch.lasting = use_sim(capacity_bytes=1 << 24), True
    with pytest.raises(torch.OutOfMemoryError, match="out of memory: an allocation of 65536 bytes") as caught:
        executor.run(trainee.step)
    assert isinstance(caught.value, StepDiffers) and caught.value.__cause__ is not None
    assert "could not be brought back" in str(caught.value.__cause__.__cause__)
    pinch.full = None
    pinch.hoard.clear()
    trainee.optimizer.zero_grad(set_to_none=True)
    assert executor.run(trainee.step).counts.as_planned


def test_a_host_limit_below_the_schedule_s_need_is_refused_at_once(device: torch.device) -> None:
    graph = graph_of(small, device)
    schedule = schedule_of(graph, sensible(graph, 1024))
    with pytest.raises(InvalidInput, match=r"takes \d+ bytes of the host at once .*, host_limit_bytes is 5000: raise"):
        SwapExecutor(schedule, graph, device, host_limit_bytes=5000)


def test_a_host_that_runs_short_is_told_and_the_step_goes_on_unswapped(device: torch.device) -> None:
    graph = graph_of(small, device)
    moves = sensible(graph, 1024)
    need = sum(graph.tensor(move.tensor).bytes for move in moves)
    executor = SwapExecutor(schedule_of(graph, moves), graph, device, host_limit_bytes=need)
    foreign = torch.ones(need // 4 // 2, device=device)
    core.swap_out(foreign)  # takes half of what the executor was promised

    def run(trainee: Trainee) -> torch.Tensor:
        values: list[torch.Tensor] = []
        with pytest.raises(HostMemoryShort, match=r"more bytes to the host would exceed host_limit_bytes=\d+"):
            executor.run(lambda: values.append(trainee.step()))
        return values[0]

    with_short_host = train(small, device, run)
    core.ensure_in(foreign)
    assert with_short_host.equals(train(small, device, plainly))


def test_one_step_at_a_time(device: torch.device) -> None:
    graph = graph_of(small, device)
    schedule = schedule_of(graph, sensible(graph, 1024))
    first, second = SwapExecutor(schedule, graph, device), SwapExecutor(schedule, graph, device)
    trainee = warm(small, device)
    with first.step() as run:
        with pytest.raises(RuntimeError, match="a swap schedule is being executed already"):
            second.run(trainee.step)
        trainee.step()
    assert run.counts.as_planned


def test_the_cpu_has_no_streams_to_swap_on(device: torch.device) -> None:
    graph = graph_of(small, device)
    with pytest.raises(InvalidInput, match="device cpu has no streams to copy on: execute on an accelerator"):
        SwapExecutor(schedule_of(graph, []), graph, "cpu")


def test_tensors_that_die_while_they_are_out_leave_nothing_behind(device: torch.device) -> None:
    """The graph of a forward pass without a backward is thrown away while its activations are out or leaving."""
    graph = graph_of(small, device)
    moves = sensible(graph, 1024)
    executor = SwapExecutor(schedule_of(graph, moves), graph, device)
    trainee = warm(small, device)
    in_use = torch.accelerator.memory_allocated()
    data = torch.randint(64, (48,)).to(device)
    with executor.step() as run:
        trainee.optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(trainee.model(data), data)
        del loss
    assert run.counts.died == run.counts.swapped_out > 0
    torch.accelerator.synchronize()
    del data
    assert torch.accelerator.memory_allocated() <= in_use


def forward_only(trainee: Trainee, data: torch.Tensor) -> torch.Tensor:
    trainee.optimizer.zero_grad(set_to_none=True)
    torch.manual_seed(5)
    return nn.functional.cross_entropy(trainee.model(data), data)


def gradients(trainee: Trainee) -> list[torch.Tensor]:
    return [parameter.grad.cpu() for parameter in trainee.model.parameters() if parameter.grad is not None]


def test_a_step_that_is_left_in_the_middle_leaves_everything_in_place(device: torch.device) -> None:
    graph = graph_of(small, device)
    executor = SwapExecutor(schedule_of(graph, sensible(graph, 1024)), graph, device)
    trainee, data = warm(small, device), torch.randint(64, (48,)).to(device)
    forward_only(trainee, data).backward()  # type: ignore[no-untyped-call]
    expected = gradients(trainee)
    with executor.step() as run:
        loss = forward_only(trainee, data)
    assert run.counts.swapped_out > 0
    assert run.counts.left_out == core.swapped_out_storages() == 0
    loss.backward()  # type: ignore[no-untyped-call]
    assert all(map(torch.equal, gradients(trainee), expected))


def test_what_does_not_fit_at_the_end_stays_out_until_it_is_used(device: torch.device) -> None:
    graph = graph_of(small, device)
    executor = SwapExecutor(schedule_of(graph, sensible(graph, 1024)), graph, device)
    trainee, data = warm(small, device), torch.randint(64, (48,)).to(device)
    forward_only(trainee, data).backward()  # type: ignore[no-untyped-call]
    expected = gradients(trainee)
    with executor.step() as run:
        loss = forward_only(trainee, data)
        torch.accelerator.synchronize()
        sim = use_sim(capacity_bytes=torch.accelerator.memory_allocated())
    assert run.counts.left_out == core.swapped_out_storages() > 0
    assert core.swap_guard_is_on()
    sim.set_capacity(1 << 28)
    loss.backward()  # type: ignore[no-untyped-call]
    assert all(map(torch.equal, gradients(trainee), expected))
    del loss
