"""Planned swaps: the same bits, less memory, and a report of what happened when."""

import msgspec
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from experiments.models.gpt import GptShape, build_gpt
from runtime.device import use_sim
from runtime.device.native import core
from runtime.swap import SwapExecutor
from solvers.ir.graph import OpGraph
from solvers.ir.hardware import HOST, Device, Hardware, Link
from solvers.ir.schedule import Schedule
from solvers.ir.solution import Limits
from solvers.ir.swap import SwapProblem
from solvers.swap import GreedySwap, MilpSwap
from solvers.swap.lower import lower
from solvers.swap.make import make_swap_problem
from solvers.timeline import simulate
from tests.accelerators import ON_EACH
from tests.runtime.execute.training import (
    Make,
    Trainee,
    graph_of,
    plainly,
    schedule_of,
    sensible,
    small,
    train,
    warm,
)


def gpt(device: torch.device, *, dropout: float = 0.1, tied: bool = False, recompute: bool = False) -> Trainee:
    shape = GptShape(layers=2, width=48, heads=2, context=32, batch=4, dropout=dropout, tied=tied)
    return Trainee(*build_gpt(shape, device, recompute=recompute))


def tied_gpt(device: torch.device) -> Trainee:
    return gpt(device, tied=True)


def recomputing_gpt(device: torch.device) -> Trainee:
    return gpt(device, recompute=True)


SLOW = Hardware(
    name="slow",
    devices=(
        Device(name="0", memory_bytes=1 << 30, flops_per_s={"float32": 10**11}, bytes_per_s=10**10, launch_us=0.1),
    ),
    links=(Link(a="0", b=HOST, bytes_per_s=2 * 10**9, latency_us=1.0),),
)
"""A device so slow that a small model keeps it busy: the problem kind `swap` knows no launch overhead."""


def tight(graph: OpGraph) -> SwapProblem:
    """A problem whose budget is halfway between the peak and the least that swapping can reach."""
    problem = make_swap_problem(graph, SLOW, None, least_tensor_bytes=1)
    absent = [
        sum(tensor.bytes for tensor in problem.tensors if tensor.last_forward_use < op < tensor.first_backward_use)
        for op in range(len(graph.ops))
    ]
    least = max(memory - away for memory, away in zip(graph.memory_bytes, absent, strict=True))
    return msgspec.structs.replace(problem, budget_bytes=(least + max(graph.memory_bytes)) // 2)


def under(schedule: Schedule, graph: OpGraph, device: torch.device, make: Make) -> None:
    """Train under the schedule and without: all bits equal, and every swap as planned."""
    executor = SwapExecutor(schedule, graph, device)

    def run(trainee: Trainee) -> torch.Tensor:
        executed = executor.run(trainee.step)
        assert executed.counts.as_planned, executed.counts
        assert executed.counts.planned > 0
        return executed.value

    assert train(make, device, run).equals(train(make, device, plainly))


@ON_EACH
@pytest.mark.parametrize("make", [small, gpt, tied_gpt, recomputing_gpt])
def test_swapping_everything_that_can_leave_changes_no_bit(device: torch.device, make: Make) -> None:
    graph = graph_of(make, device)
    under(schedule_of(graph, sensible(graph, 1024)), graph, device, make)


@pytest.mark.parametrize("solver", [GreedySwap(), MilpSwap()])
def test_a_solved_plan_keeps_its_budget_its_time_and_every_bit(
    device: torch.device, solver: GreedySwap | MilpSwap
) -> None:
    use_sim(SLOW)
    graph = graph_of(gpt, device)
    problem = tight(graph)
    plan = solver.solve(problem, Limits(time_s=600, work=0.1)).plan
    assert plan is not None and plan.swaps
    schedule = lower(problem, plan)
    under(schedule, graph, device, gpt)
    trainee = warm(gpt, device)
    predicted, executed = simulate(problem, schedule), SwapExecutor(schedule, graph, device).run(trainee.step).report
    assert executed.peak_bytes == predicted.peak_bytes <= problem.budget_bytes
    assert executed.makespan_us == pytest.approx(predicted.makespan_us, rel=0.02)


def test_the_step_fits_where_it_would_not_without_the_plan(device: torch.device) -> None:
    graph = graph_of(gpt, device)
    problem = tight(graph)
    plan = GreedySwap().solve(problem, Limits()).plan
    assert plan is not None
    trainee = warm(gpt, device)
    use_sim(capacity_bytes=problem.budget_bytes)
    with pytest.raises(torch.OutOfMemoryError):
        trainee.step()
    executed = SwapExecutor(lower(problem, plan), graph, device).run(trainee.step)
    assert executed.counts.as_planned


def test_what_an_operator_keeps_to_itself_is_found_and_swapped(device: torch.device) -> None:
    """Dropout returns the scaled values and keeps its mask for the backward pass."""
    graph = graph_of(small, device)
    moves = [
        move
        for move in sensible(graph, 1024)
        if move.tensor not in (*graph.ops[move.out].inputs, *graph.ops[move.out].outputs)
    ]
    assert {graph.ops[move.out].name for move in moves} == {"aten::dropout"}
    under(schedule_of(graph, moves), graph, device, small)


@ON_EACH
def test_the_report_tells_when_each_action_ran(device: torch.device) -> None:
    graph = graph_of(small, device)
    schedule = schedule_of(graph, sensible(graph, 2048))
    report = SwapExecutor(schedule, graph, device).run(warm(small, device).step).report
    assert report.how == "executed"
    spans = {span.action: span for span in report.spans}
    assert len(spans) == len(schedule.actions)
    for action in schedule.actions:
        assert 0 <= spans[action.id].start_us <= spans[action.id].end_us
        for before in action.after:  # a CUDA event resolves about half a microsecond
            assert spans[before].end_us <= spans[action.id].end_us + 1
    assert spans[len(spans) - 1].end_us <= report.makespan_us
    assert max(in_use for _, in_use in report.memory) <= report.peak_bytes
    assert report.peak_at_us <= report.makespan_us
    assert set(report.stall_us) == {"swap_in", "swap_out", "on_demand"}
    assert report.stall_us["on_demand"] == 0


def test_an_untraced_step_reports_its_time_and_peak_only(device: torch.device) -> None:
    graph = graph_of(small, device)
    schedule = schedule_of(graph, sensible(graph, 2048))
    traced = SwapExecutor(schedule, graph, device).run(warm(small, device).step).report
    untraced = SwapExecutor(schedule, graph, device, trace=False).run(warm(small, device).step).report
    assert (untraced.makespan_us, untraced.peak_bytes) == (traced.makespan_us, traced.peak_bytes)
    assert not untraced.spans
    assert not untraced.memory


def test_executors_take_turns_and_share_host_memory(device: torch.device) -> None:
    graph = graph_of(small, device)
    moves = sensible(graph, 2048)
    first = SwapExecutor(schedule_of(graph, moves), graph, device)
    second = SwapExecutor(schedule_of(graph, moves[:2]), graph, device)
    turns = [first, second, first, second]

    def run(trainee: Trainee) -> torch.Tensor:
        executed = turns.pop().run(trainee.step)
        assert executed.counts.as_planned
        return executed.value

    swapped = train(small, device, run, steps=4)
    allocations = core.host_stats().allocations
    first.run(warm(small, device).step)
    assert core.host_stats().allocations == allocations
    assert swapped.equals(train(small, device, plainly, steps=4))


def test_a_step_written_as_a_context(device: torch.device) -> None:
    graph = graph_of(small, device)
    trainee = warm(small, device)
    with SwapExecutor(schedule_of(graph, sensible(graph)), graph, device).step() as run:
        trainee.step()
    assert run.counts.as_planned
    assert run.report.peak_bytes > 0


def test_swaps_inside_user_functions_and_non_contiguous_views(device: torch.device) -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: torch.autograd.function.FunctionCtx, value: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(value)
            return value * value

        @staticmethod
        def backward(ctx: torch.autograd.function.FunctionCtx, *grads: torch.Tensor) -> torch.Tensor:
            (value,) = ctx.saved_tensors  # type: ignore[attr-defined]
            return torch.mul(grads[0], 2 * value)

    def make(device: torch.device) -> Trainee:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 24)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        data = torch.randn(40, 24).to(device)

        def step() -> torch.Tensor:
            optimizer.zero_grad()
            hidden = checkpoint(model, data, use_reentrant=False)
            turned = hidden.t()[3:20:2, 5:]
            loss: torch.Tensor = Twice.apply(turned).sum() + hidden[:, [1, 5]].mean()  # type: ignore[no-untyped-call]
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            return loss.detach()

        return Trainee(model, optimizer, step)

    graph = graph_of(make, device)
    moves = sensible(graph)
    assert moves
    under(schedule_of(graph, moves), graph, device, make)
