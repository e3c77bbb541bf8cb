"""From a profile to an executed plan: a checked plan keeps its memory, or one sentence says why it cannot."""

import copy
from collections.abc import Callable

import msgspec
import pytest
import torch
from torch import nn
from torch.nn import functional

from runtime.device import SimDevice, limited_memory, memory_stats, use_sim
from runtime.device.native import core
from runtime.device.settling import settled
from runtime.profile import profile_step
from runtime.swap import Executed, StepDiffers, SwapExecutor
from solvers.ir.errors import InfeasibleBudget, InvalidInput, InvalidProblem
from solvers.ir.graph import OpGraph
from solvers.ir.hardware import HOST, Device, Hardware, Link
from solvers.ir.schedule import Schedule
from solvers.ir.solution import Limits
from solvers.planner import planner
from solvers.timeline import promised_peak_bytes
from tests.runtime.execute.training import Trainee, graph_of, schedule_of, sensible, small, warm

QUICK = Hardware(
    name="quick link",
    devices=(
        Device(name="0", memory_bytes=1 << 30, flops_per_s={"float32": 10**12}, bytes_per_s=10**11, launch_us=1.0),
    ),
    links=(Link(a="0", b=HOST, bytes_per_s=16 * 10**9, latency_us=1.0),),
)

Step = Callable[[], torch.Tensor]


@pytest.fixture(autouse=True)
def sim() -> SimDevice:
    """A device that raises at races."""
    return use_sim(QUICK, races="raise")


class Attention(nn.Module):
    """Self-attention with dropout inside the operator, whose mask and weights nobody returns."""

    def __init__(self, width: int = 32, heads: int = 2, dropout: float = 0.1) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.dropout = heads, dropout

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """(batch, tokens, width) to the same."""
        batch, tokens, width = hidden.shape
        parts = self.inner(hidden).chunk(3, -1)
        query, key, value = (part.view(batch, tokens, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(query, key, value, dropout_p=self.dropout, is_causal=True)
        result: torch.Tensor = hidden + self.outer(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return result


def trainee_of(blocks: list[nn.Module], data: torch.Tensor) -> Trainee:
    """A stack of blocks that learns to return nothing."""
    model = nn.Sequential(*blocks).to("sim")
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> torch.Tensor:
        loss: torch.Tensor = model(data).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return Trainee(model, optimizer, step)


def attention_trainee() -> Trainee:
    torch.manual_seed(0)
    return trainee_of([Attention() for _ in range(4)], torch.randn(4, 32, 32).to("sim"))


def plan(trainee: Trainee, share: float, solver: str = "greedy-swap") -> tuple[OpGraph, Schedule, int]:
    """The graph, a schedule, and its budget: that share of the way from the least budget to the peak."""
    graph = profile_step(trainee.step, "sim", model=trainee.model, optimizer=trainee.optimizer)
    with pytest.raises(InfeasibleBudget) as caught:
        planner(solver)(graph, QUICK, 1)
    least = caught.value.least_budget_bytes
    assert least is not None
    budget = least + int(share * (max(graph.memory_bytes) - least))
    schedule = planner(solver, limits=Limits(work=5.0, threads=1))(graph, QUICK, budget).plan
    assert schedule is not None
    return graph, schedule, budget


def promised(graph: OpGraph, schedule: Schedule) -> int:
    return promised_peak_bytes(
        graph.memory_bytes, {tensor.id: graph.block_bytes(tensor) for tensor in graph.tensors}, schedule
    )


@pytest.mark.parametrize("solver", ["greedy-swap", "milp-swap"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_attention_with_dropout_keeps_its_plan(sim: SimDevice, share: float, solver: str) -> None:
    """Dropout inside attention keeps several storages of one size: the planned one leaves, not its neighbour."""
    reference = attention_trainee()
    for _ in range(3):  # the profile trains, too
        reference.step()
    expected = reference.step()
    trainee = attention_trainee()
    graph, schedule, budget = plan(trainee, share, solver)
    sim.set_capacity(budget)
    done = SwapExecutor(schedule, graph).run(trainee.step)
    assert done.counts.as_planned and done.counts.planned > 0, done.counts
    assert (done.report.peak_bytes, done.counts.died) == (promised(graph, schedule), 0)
    assert done.report.peak_bytes <= budget
    assert torch.equal(done.value, expected)
    assert all(map(torch.equal, trainee.model.parameters(), reference.model.parameters()))


def test_what_an_operator_keeps_is_found_by_its_place_among_what_was_made_inside() -> None:
    graph = profile_step(attention_trainee().step, "sim")
    kept = [tensor for tensor in graph.tensors if tensor.inner is not None]
    assert kept and all(tensor.born is not None and tensor.uses[0] == tensor.born for tensor in kept)
    for tensor in kept:
        assert tensor.born is not None and tensor.id not in graph.ops[tensor.born].outputs
    of_one = [tensor for tensor in kept if tensor.born == kept[0].born]
    assert len({tensor.inner for tensor in of_one}) == len(of_one)


def test_a_graph_that_does_not_say_where_such_a_tensor_is_found_is_refused() -> None:
    trainee = attention_trainee()
    graph, schedule, _ = plan(trainee, 0.0)
    old = msgspec.structs.replace(
        graph, tensors=tuple(msgspec.structs.replace(tensor, inner=None) for tensor in graph.tensors)
    )
    with pytest.raises(InvalidProblem, match=r"does not say where it is found \(`inner`\): profile the step again"):
        SwapExecutor(schedule, old)
    assert planner("greedy-swap")(old, QUICK, max(graph.memory_bytes)).plan is not None


def test_a_result_that_the_caller_keeps_waits_on_the_host(sim: SimDevice) -> None:
    """`done = executor.run(step)` holds the last loss during the next step, whose budget has no byte to spare."""
    trainee = attention_trainee()
    graph, schedule, _ = plan(trainee, 0.5)
    sim.set_capacity(promised(graph, schedule))
    executor = SwapExecutor(schedule, graph)
    kept: Executed[torch.Tensor] | None = None
    for _ in range(3):
        kept = executor.run(trainee.step)  # the one before is held until this one is there
        assert kept.counts.as_planned
        assert kept.value.item() > 0
    assert core.swapped_out_storages() == 0


def test_where_there_is_room_for_kept_results_nobody_looks_for_garbage(
    sim: SimDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look takes a tenth of a second in a process of many objects: only a step that lacks memory is worth it."""
    trainee = attention_trainee()
    graph, schedule, _ = plan(trainee, 0.5)
    executor, looks = SwapExecutor(schedule, graph), list[str]()
    monkeypatch.setattr("runtime.execute.promise.gc.collect", lambda: looks.append("one"))
    kept = [executor.run(trainee.step).value for _ in range(3)]
    assert (len(kept), looks) == (3, [])
    hoard = torch.ones(4096, device="sim")
    sim.set_capacity(promised(graph, schedule) + 4096)
    with pytest.raises(InvalidInput, match="free what the step does not need"):
        executor.run(trainee.step)
    assert looks == ["one"]
    del hoard


def test_what_lives_beyond_the_profiled_step_is_refused_before_the_step(sim: SimDevice) -> None:
    trainee = attention_trainee()
    graph, schedule, _ = plan(trainee, 0.5)
    sim.set_capacity(promised(graph, schedule) + 4096)
    executor = SwapExecutor(schedule, graph)
    hoard = torch.ones(4096, device="sim")
    with pytest.raises(InvalidInput, match=r"and 16384 more are in use than when its step was profiled"):
        executor.run(trainee.step)
    del hoard
    assert executor.run(trainee.step).counts.as_planned


def test_a_device_below_the_plan_s_peak_is_refused_before_the_step(sim: SimDevice) -> None:
    trainee = attention_trainee()
    graph, schedule, budget = plan(trainee, 0.5)
    peak = promised(graph, schedule)
    sim.set_capacity(peak - 512)
    with pytest.raises(InvalidInput, match=f"the plan's peak is {peak} bytes, but sim:0 has {peak - 512}: plan for"):
        SwapExecutor(schedule, graph).run(trainee.step)
    assert peak <= budget


def test_an_answer_without_a_plan_is_refused() -> None:
    graph = profile_step(attention_trainee().step, "sim")
    with pytest.raises(InvalidInput, match="no schedule to execute, as the solver found no plan"):
        SwapExecutor(None, graph)


class Growing:
    """A step whose sizes depend on data: it works on the first `rows` rows of its input."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        blocks = [nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(4)]
        self.model = nn.Sequential(*blocks).to("sim")
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.data = torch.randn(512, 32).to("sim")
        self.rows = 256

    def step(self) -> torch.Tensor:
        loss: torch.Tensor = self.model(self.data[: self.rows].clone()).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


def test_a_step_of_other_sizes_runs_where_memory_suffices_and_says_so(sim: SimDevice) -> None:
    growing = Growing()
    graph, schedule, _ = plan(Trainee(growing.model, growing.optimizer, growing.step), 0.3)
    reference = Growing()
    for _ in range(3):
        reference.step()
    growing.rows = reference.rows = 128
    expected = reference.step()
    done = SwapExecutor(schedule, graph).run(growing.step)
    assert torch.equal(done.value, expected)
    assert done.counts.difference == ("operator 0 (aten::clone) gives 16,384 bytes where its profile gave 32,768")
    assert done.counts.departure is not None and not done.counts.as_planned
    assert core.swapped_out_storages() == 0


def test_a_step_of_larger_sizes_runs_too_where_memory_suffices(sim: SimDevice) -> None:
    growing = Growing()
    graph, schedule, _ = plan(Trainee(growing.model, growing.optimizer, growing.step), 0.3)
    reference = Growing()
    for _ in range(3):
        reference.step()
    growing.rows = reference.rows = 512
    expected = reference.step()
    done = SwapExecutor(schedule, graph).run(growing.step)
    assert torch.equal(done.value, expected) and not done.counts.as_planned
    assert done.report.peak_bytes > promised(graph, schedule)
    assert core.swapped_out_storages() == 0


def test_a_step_of_larger_sizes_that_runs_out_of_memory_is_refused_by_name(sim: SimDevice) -> None:
    growing = Growing()
    graph, schedule, budget = plan(Trainee(growing.model, growing.optimizer, growing.step), 0.3)
    executor = SwapExecutor(schedule, graph)
    growing.rows = 512
    with (
        limited_memory(sim.device, budget),
        pytest.raises(
            StepDiffers, match=r"gives 65,536 bytes where its profile gave 32,768.*use `runtime.swap.session`"
        ) as caught,
    ):
        executor.run(growing.step)
    assert isinstance(caught.value.__cause__, torch.OutOfMemoryError)
    assert core.swapped_out_storages() == 0
    del caught  # its frames hold what the step had made
    growing.optimizer.zero_grad()
    growing.rows = 256
    with limited_memory(sim.device, budget):
        assert executor.run(growing.step).counts.as_planned


def test_memory_asked_for_between_operators_finds_what_the_plan_frees_for_the_next(sim: SimDevice) -> None:
    """`torch.empty` is no counted operator: it asks before the next one begins."""

    class Scratch(torch.autograd.Function):
        @staticmethod
        def forward(ctx: torch.autograd.function.FunctionCtx, value: torch.Tensor) -> torch.Tensor:
            scratch = torch.empty(96 * 1024, dtype=torch.uint8, device=value.device)
            result = value * 2
            del scratch
            return result

        @staticmethod
        def backward(ctx: torch.autograd.function.FunctionCtx, *grads: torch.Tensor) -> torch.Tensor:
            return grads[0] * 2

    class Scratched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(32, 32)

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = functional.gelu(self.linear(Scratch.apply(value)))  # type: ignore[no-untyped-call]
            return result

    torch.manual_seed(0)
    trainee = trainee_of([Scratched() for _ in range(6)], torch.randn(256, 32).to("sim"))
    graph, schedule, _ = plan(trainee, 0.0)
    sim.set_capacity(promised(graph, schedule))
    done = SwapExecutor(schedule, graph).run(trainee.step)
    assert done.counts.as_planned and done.counts.planned > 0
    assert done.report.peak_bytes == promised(graph, schedule)


def side_stream_trainee() -> Trainee:
    """Its batch is copied on a stream of its own, as a prefetching loader does, in every step."""
    torch.manual_seed(0)
    side = torch.Stream(device="sim")
    host = torch.randn(256, 32)
    blocks = [nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(4)]
    model = nn.Sequential(*blocks).to("sim")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> torch.Tensor:
        current = torch.accelerator.current_stream()
        side.wait_stream(current)
        with side:
            batch = host.to("sim") * 2
        current.wait_stream(side)
        batch.record_stream(current)
        loss: torch.Tensor = model(batch).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return Trainee(model, optimizer, step)


def test_operators_on_another_stream_are_followed_and_what_they_use_stays(sim: SimDevice) -> None:
    reference = side_stream_trainee()
    expected = [reference.step() for _ in range(5)]
    trainee = side_stream_trainee()
    graph, schedule, _ = plan(trainee, 0.4)
    executor = SwapExecutor(schedule, graph)
    found = []
    for _ in range(2):
        done = executor.run(trainee.step)
        assert done.counts.departure is None and done.counts.swapped_in == done.counts.swapped_out > 0
        found.append(done.value)
    assert all(map(torch.equal, found, expected[3:]))


def test_resident_bytes_are_those_in_use_before_the_step() -> None:
    trainee = attention_trainee()
    trainee.step()
    in_use = settled(lambda: memory_stats(torch.device("sim", 0)).allocated_bytes)
    assert profile_step(trainee.step, "sim").resident_bytes == pytest.approx(in_use, abs=20_000)


def test_a_hand_made_schedule_promises_its_peak(device: torch.device) -> None:
    graph = graph_of(small, device)
    schedule = schedule_of(graph, sensible(graph, 1024))
    done = SwapExecutor(schedule, graph, device).run(warm(small, device).step)
    assert done.report.peak_bytes <= promised(graph, schedule) < max(graph.memory_bytes)


def test_all_results_that_a_loop_keeps_wait_on_the_host(sim: SimDevice) -> None:
    trainee = attention_trainee()
    graph, schedule, _ = plan(trainee, 0.0)
    sim.set_capacity(promised(graph, schedule))
    executor = SwapExecutor(schedule, graph)
    losses = [executor.run(trainee.step).value for _ in range(4)]
    assert len({loss.item() for loss in losses}) == 4


def test_a_step_that_fills_the_device_says_so_though_a_kept_result_cannot_come_back(sim: SimDevice) -> None:
    trainee = attention_trainee()
    graph, schedule, _ = plan(trainee, 0.0)
    sim.set_capacity(promised(graph, schedule))
    executor = SwapExecutor(schedule, graph)
    kept = executor.run(trainee.step).value
    expected = kept.clone().cpu()
    hoard: list[torch.Tensor] = []

    def filling() -> None:
        while True:
            hoard.append(torch.ones(128, device="sim"))

    with pytest.raises(StepDiffers, match="the step is not the one that was profiled"):
        executor.run(filling)
    assert core.swapped_out_storages() == 1
    hoard.clear()
    assert torch.equal(kept.cpu(), expected)
    assert core.swapped_out_storages() == 0


def test_copies_and_addresses_taken_in_mid_step_are_right(sim: SimDevice) -> None:
    """`deepcopy` and `data_ptr()` read what has left, past all operators; what they read stays from then on."""
    read: list[torch.Tensor] = []
    kept: list[torch.Tensor] = []

    def reading(step: Step, model: nn.Module) -> torch.Tensor:
        kept.clear()

        def keep(block: nn.Module, inputs: object, output: torch.Tensor) -> None:
            kept.append(output)
            if len(kept) == 4:
                read.append(copy.deepcopy(kept[0].detach()).cpu())
                assert kept[1].data_ptr() > 0

        hooks = [block.register_forward_hook(keep) for block in model.children()]
        try:
            return step()
        finally:
            kept.clear()
            for hook in hooks:
                hook.remove()

    reference = attention_trainee()
    for _ in range(3):
        reference.step()
    expected = reading(reference.step, reference.model)
    trainee = attention_trainee()
    graph, schedule, _ = plan(trainee, 0.0)
    done = SwapExecutor(schedule, graph).run(lambda: reading(trainee.step, trainee.model))
    assert torch.equal(done.value, expected) and torch.equal(*read)
    assert core.swapped_out_storages() == 0
