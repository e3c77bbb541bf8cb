"""Plans that do not fit the step: the guard brings back what an operator needs, and no bit changes."""

import re
from collections.abc import Callable

import msgspec
import pytest
import torch
from torch import nn
from torch.nn import functional

from runtime.swap import Executed, SwapExecutor
from solvers.ir.graph import OpGraph
from tests.accelerators import ON_EACH
from tests.runtime.execute.training import (
    Move,
    Residual,
    Trainee,
    candidates,
    graph_of,
    plainly,
    schedule_of,
    sensible,
    small,
    train,
)

Run = list[Executed[torch.Tensor]]


def swapped(
    graph: OpGraph,
    moves: list[Move],
    device: torch.device,
    call: Callable[[Trainee], torch.Tensor] = plainly,
    plan_graph: OpGraph | None = None,
) -> Executed[torch.Tensor]:
    """Train under the moves and without, compare every bit, and give the last step's result."""
    executor = SwapExecutor(schedule_of(plan_graph or graph, moves), plan_graph or graph, device)
    done: Run = []

    def run(trainee: Trainee) -> torch.Tensor:
        done.append(executor.run(lambda: call(trainee)))
        return done[-1].value

    assert train(small, device, run).equals(train(small, device, call))
    return done[-1]


@ON_EACH
def test_without_swap_ins_everything_is_fetched(device: torch.device) -> None:
    graph = graph_of(small, device)
    moves = [Move(move.tensor, move.out, move.release, len(graph.ops)) for move in sensible(graph, 1024)]
    counts = swapped(graph, moves, device).counts
    assert counts.fetched == counts.swapped_in == counts.swapped_out == len(moves)
    assert counts.departure is None


@ON_EACH
def test_without_releases_everything_is_cancelled(device: torch.device) -> None:
    graph = graph_of(small, device)
    moves = [Move(move.tensor, move.out, len(graph.ops), len(graph.ops)) for move in sensible(graph, 1024)]
    counts = swapped(graph, moves, device).counts
    assert counts.cancelled == counts.swapped_out == len(moves)
    assert counts.swapped_in == 0


def test_a_swap_out_before_the_last_forward_use_is_undone(device: torch.device) -> None:
    graph = graph_of(small, device)
    moves = [
        Move(tensor.id, tensor.uses[0], tensor.uses[0] + 1, first - 1)
        for tensor, last, first in candidates(graph, 1024)
        if tensor.uses[0] < last
        and tensor.id in (*graph.ops[tensor.uses[0]].inputs, *graph.ops[tensor.uses[0]].outputs)
    ]
    counts = swapped(graph, moves, device).counts
    assert moves
    assert counts.fetched + counts.cancelled == len(moves)


def test_a_swap_in_after_the_use_does_nothing(device: torch.device) -> None:
    graph = graph_of(small, device)
    moves = [move._replace(back=min(move.back + 5, len(graph.ops) - 1)) for move in sensible(graph, 1024)]
    counts = swapped(graph, moves, device).counts
    assert counts.fetched > 0
    assert counts.swapped_in == counts.swapped_out == len(moves)


def test_a_use_that_the_plan_does_not_know_finds_data_on_its_way(device: torch.device) -> None:
    graph = graph_of(small, device)
    tensor, last, first = max(candidates(graph), key=lambda entry: entry[2] - entry[1])
    later = tuple(use for use in tensor.uses if use != first)
    forgetful = msgspec.structs.replace(
        graph, tensors=tuple(msgspec.structs.replace(t, uses=later) if t.id == tensor.id else t for t in graph.tensors)
    )
    counts = swapped(graph, [Move(tensor.id, last, last + 2, first)], device, plan_graph=forgetful).counts
    assert counts.early == 1


@pytest.mark.parametrize("kind", ["parameter", "gradient", "optimizer", "input"])
def test_tensors_that_no_planner_would_take(device: torch.device, kind: str) -> None:
    graph = graph_of(small, device)
    moves = []
    for tensor in graph.tensors:
        held = [use for use in tensor.uses if tensor.id in (*graph.ops[use].inputs, *graph.ops[use].outputs)]
        if tensor.kind == kind and tensor.bytes > 0 and held and held[0] + 1 < len(graph.ops):
            moves.append(Move(tensor.id, held[0], held[0] + 1, len(graph.ops)))
    assert moves
    counts = swapped(graph, moves, device).counts
    assert counts.swapped_out > 0
    assert counts.left_out == 0


def test_a_plan_for_other_sizes_is_left_at_the_first_difference(device: torch.device) -> None:
    graph = graph_of(small, device)
    other = graph_of(lambda place: small(place, tokens=40), device)
    counts = swapped(graph, sensible(other, 1024), device, plan_graph=other).counts
    assert counts.departure is not None
    assert re.search(r"has [\d,]+ bytes as \w+ \d where its profile had", counts.departure)
    assert counts.swapped_out < counts.planned


def test_a_plan_for_another_sequence_is_left_at_the_first_difference(device: torch.device) -> None:
    graph = graph_of(small, device)
    wrong = 2 * len(graph.ops) // 3
    ops = tuple(
        msgspec.structs.replace(op, name="aten::nonsense") if number == wrong else op
        for number, op in enumerate(graph.ops)
    )
    other = msgspec.structs.replace(graph, ops=ops)
    counts = swapped(graph, sensible(graph, 1024), device, plan_graph=other).counts
    assert counts.departure == f"operator {wrong} (aten::nonsense) is {graph.ops[wrong].name} in this step"
    assert counts.operators_followed == wrong
    assert counts.operators == len(graph.ops)


def test_a_validation_pass_in_between_is_a_departure(device: torch.device) -> None:
    graph = graph_of(small, device)

    def with_validation(trainee: Trainee) -> torch.Tensor:
        with torch.no_grad():
            trainee.model.eval()
            trainee.model(torch.arange(7, device=device))
            trainee.model.train()
        return trainee.step()

    counts = swapped(graph, sensible(graph, 1024), device, with_validation).counts
    assert counts.departure is not None
    assert counts.operators > len(graph.ops)


def test_validation_between_forward_and_backward_reads_what_is_out(device: torch.device) -> None:
    graph = graph_of(small, device)

    def interrupted(trainee: Trainee) -> torch.Tensor:
        original = functional.cross_entropy

        def entropy(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            loss = original(logits, target)
            with torch.no_grad():
                trainee.model.eval()
                trainee.model(torch.arange(7, device=device))
                trainee.model.train()
            return loss

        functional.cross_entropy = entropy  # type: ignore[assignment]
        try:
            return trainee.step()
        finally:
            functional.cross_entropy = original

    counts = swapped(graph, sensible(graph, 1024), device, interrupted).counts
    assert counts.departure is not None
    assert counts.swapped_out > 0
    assert counts.on_demand >= counts.swapped_out - counts.died


def test_a_step_that_ends_early_says_so(device: torch.device) -> None:
    graph = graph_of(small, device)
    longer = msgspec.structs.replace(graph, ops=(*graph.ops, graph.ops[-1]), memory_bytes=(*graph.memory_bytes, 0))
    counts = swapped(graph, sensible(graph, 1024), device, plan_graph=longer).counts
    assert counts.departure == f"the step ends after {len(graph.ops)} operators, its profile has {len(graph.ops) + 1}"
    assert not counts.as_planned


def test_operators_after_the_plan_s_last_are_counted(device: torch.device) -> None:
    graph = graph_of(small, device)

    def more(trainee: Trainee) -> torch.Tensor:
        return trainee.step() * 2

    counts = swapped(graph, sensible(graph, 1024), device, more).counts
    assert counts.departure is None
    assert counts.operators == len(graph.ops) + 1
    assert not counts.as_planned


def test_what_a_step_on_another_stream_uses_stays(device: torch.device) -> None:
    graph = graph_of(small, device)
    side = torch.Stream(device=device)

    def elsewhere(trainee: Trainee) -> torch.Tensor:
        torch.accelerator.synchronize()
        with side:
            loss = trainee.step()
        torch.accelerator.synchronize()
        return loss

    counts = swapped(graph, sensible(graph, 1024), device, elsewhere).counts
    assert counts.departure is None and counts.difference is not None
    assert "bytes on the device: an operator on another stream uses it" in counts.difference
    assert counts.swapped_out == 0 and counts.refused == counts.planned > 0


@ON_EACH
def test_another_stream_finds_what_came_back_for_the_first(device: torch.device) -> None:
    """The stream waits for an event from before the swap, as the plain program needs no later one."""
    graph = graph_of(small, device)
    side = torch.Stream(device=device)

    def looked_at(trainee: Trainee) -> torch.Tensor:
        made, kept = torch.Event(device=device), list[torch.Tensor]()
        sums = list[torch.Tensor]()

        def keep(layer: nn.Module, inputs: object, output: torch.Tensor) -> None:
            kept.append(output.detach())
            made.record()

        def look(loss: torch.Tensor) -> None:
            sums.append(kept[0].sum())
            side.wait_event(made)
            with side:
                sums.append(kept[0].sum() + kept[1].sum())
            torch.accelerator.current_stream().wait_stream(side)

        model = trainee.model
        assert isinstance(model, Residual)
        hooks = [layer.register_forward_hook(keep) for layer in model.wide]
        hooks.append(model.register_forward_hook(lambda model, inputs, output: look(output)))
        try:
            total = trainee.step() + sums[0] + sums[1]
            torch.accelerator.synchronize()  # before the side stream's memory goes back
            return total
        finally:
            for hook in hooks:
                hook.remove()

    counts = swapped(graph, sensible(graph, 1024), device, looked_at).counts
    assert counts.departure is not None
    assert counts.on_demand > 0
