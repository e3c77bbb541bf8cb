"""Storages, their uses, and what they are."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from runtime.profile.step import profile_step
from solvers.ir.graph import OpGraph, Tensor

Parts = tuple[torch.nn.Module, torch.optim.Optimizer, Callable[[], torch.Tensor]]


def trainable(module: torch.nn.Module, forward: Callable[[], torch.Tensor]) -> Parts:
    """The module under plain gradient descent; the step leaves no gradient behind."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, foreach=True)

    def step() -> torch.Tensor:
        loss = forward().square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return module, optimizer, step


def graph_of(parts: Parts, *, told: bool = True) -> OpGraph:
    model, optimizer, step = parts
    return profile_step(step, "cpu", model=model if told else None, optimizer=optimizer if told else None)


def position(graph: OpGraph, name: str) -> int:
    return [op.name for op in graph.ops].index(f"aten::{name}")


def produced_by(graph: OpGraph, name: str) -> Tensor:
    return graph.tensor(graph.ops[position(graph, name)].outputs[0])


def mlp() -> Parts:
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    batch = torch.randn(3, 4)
    return trainable(module, lambda: module(batch))


def test_the_input_of_gelu_is_saved_and_used_by_its_gradient() -> None:
    graph = graph_of(mlp())
    saved = produced_by(graph, "linear")
    assert saved.saved
    assert saved.kind == "activation"
    assert saved.uses == (position(graph, "linear"), position(graph, "gelu"), position(graph, "gelu_backward"))


def test_what_is_not_needed_again_is_not_saved() -> None:
    module = torch.nn.Linear(4, 8)
    batch = torch.randn(3, 4)
    graph = graph_of(trainable(module, lambda: (module(batch) + 1).exp()))
    assert not produced_by(graph, "linear").saved  # the gradient of + needs nothing
    assert not produced_by(graph, "add.Tensor").saved  # that of exp needs exp's result
    assert produced_by(graph, "exp").saved


@pytest.mark.parametrize("told", [True, False])
def test_kinds_are_inferred_as_the_model_would_tell(told: bool) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    batch = torch.randn(3, 4)
    optimizer = torch.optim.AdamW(module.parameters(), foreach=True)

    def step() -> None:
        optimizer.zero_grad()
        module(batch).square().mean().backward()
        optimizer.step()

    graph = graph_of((module, optimizer, step), told=told)  # type: ignore[arg-type]
    counts = {kind: sum(tensor.kind == kind for tensor in graph.tensors) for kind in ("parameter", "gradient", "input")}
    assert counts == {"parameter": 4, "gradient": 4, "input": 1}
    assert sum(tensor.kind == "optimizer" for tensor in graph.tensors) == 12  # two moments and a step count each


def test_gradients_that_pile_up_are_older_than_the_step() -> None:
    module, batch = torch.nn.Linear(4, 2, bias=False), torch.randn(3, 4)
    graph = graph_of((module, None, lambda: module(batch).sum().backward()))  # type: ignore[arg-type]
    (gradient,) = [tensor for tensor in graph.tensors if tensor.kind == "gradient"]
    assert gradient.born is None
    assert graph.ops[gradient.uses[-1]].name == "aten::add_.Tensor"
    assert not gradient.saved


def test_tied_weights_are_one_tensor() -> None:
    table = torch.nn.Embedding(10, 4)
    tokens = torch.tensor([[1, 2, 3]])
    graph = graph_of(trainable(table, lambda: F.linear(table(tokens), table.weight)))
    (weight,) = [tensor for tensor in graph.tensors if tensor.kind == "parameter"]
    assert {position(graph, "embedding"), position(graph, "linear")} <= set(weight.uses)


def test_views_share_their_storage_and_its_whole_size() -> None:
    module = torch.nn.Linear(4, 12, bias=False)
    batch = torch.randn(3, 4)

    def forward() -> torch.Tensor:
        first, second, _ = module(batch).chunk(3, dim=-1)
        return torch.mul(first, second)

    graph = graph_of(trainable(module, forward))
    whole = produced_by(graph, "linear")
    assert whole.bytes == 3 * 12 * 4
    assert graph.ops[position(graph, "mul.Tensor")].inputs == (whole.id, whole.id)


def test_an_operation_in_place_keeps_the_tensor_and_lists_it_as_output() -> None:
    module = torch.nn.Linear(4, 8)
    batch = torch.randn(3, 4)
    graph = graph_of(trainable(module, lambda: module(batch).relu_()))
    activated = graph.ops[position(graph, "relu_")]
    assert activated.inputs == activated.outputs == graph.ops[position(graph, "linear")].outputs
    assert graph.tensor(activated.inputs[0]).saved


def test_foreach_lists_are_flattened_and_what_they_write_is_output() -> None:
    graph = graph_of(mlp())
    update = graph.ops[position(graph, "_foreach_add_.List")]
    assert len(update.inputs) == 8
    assert update.outputs == update.inputs[:4]
    assert {graph.tensor(number).kind for number in update.outputs} == {"parameter"}


def test_checkpointing_saves_the_input_and_recomputes_in_the_backward_phase() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))
    batch = torch.randn(3, 4, requires_grad=True)
    graph = graph_of(trainable(module, lambda: checkpoint(module, batch * 2, use_reentrant=False)))
    places = [number for number, op in enumerate(graph.ops) if op.name == "aten::gelu"]
    assert [graph.ops[number].phase for number in places] == ["forward", "backward"]
    thrown_away, recomputed = (graph.tensor(graph.ops[number].inputs[0]) for number in places)
    assert not thrown_away.saved
    assert not recomputed.saved
    assert (thrown_away.kind, recomputed.kind) == ("activation", "other")
    assert produced_by(graph, "mul.Tensor").saved


def test_buffers_and_frozen_weights_are_parameters_where_the_model_is_known() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8))
    module[0].weight.requires_grad_(False)
    batch = torch.randn(3, 4)
    graph = graph_of(trainable(module, lambda: module(batch)))
    norm = graph.ops[position(graph, "batch_norm")]
    assert [graph.tensor(number).kind for number in norm.inputs] == ["activation", *["parameter"] * 4]
    weight = graph.tensor(graph.ops[position(graph, "linear")].inputs[1])
    assert weight.kind == "parameter"


def test_a_hidden_result_is_born_where_it_was_computed() -> None:
    module = torch.nn.LayerNorm(8)
    batch = torch.randn(3, 8)
    graph = graph_of(trainable(module, lambda: module(batch)))
    place, gradient = position(graph, "layer_norm"), position(graph, "native_layer_norm_backward")
    hidden = [tensor for tensor in graph.tensors if tensor.born == place and tensor.uses == (place, gradient)]
    assert [tensor.bytes for tensor in hidden] == [3 * 4, 3 * 4]  # mean and 1 / deviation of each row
    assert all(tensor.saved for tensor in hidden)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_count_by_their_buffer() -> None:
    module = torch.nn.Linear(4, 4)
    rows = [torch.ones(2, 4), torch.ones(3, 4)]

    def forward() -> torch.Tensor:
        ragged = torch.nested.as_nested_tensor([module(row) for row in rows])
        padded: torch.Tensor = torch.nested.to_padded_tensor(torch.relu(ragged), 0.0)
        return padded

    graph = graph_of(trainable(module, forward))
    assert produced_by(graph, "relu").bytes == 5 * 4 * 4


def test_sparse_fake_and_empty_tensors_do_no_harm() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    module = torch.nn.Linear(2, 2)

    def forward() -> torch.Tensor:
        sparse = torch.eye(2).to_sparse()
        with FakeTensorMode(allow_non_fake_inputs=True):
            torch.ones(1 << 40) + 1
        nothing = torch.zeros(0, 2) + 1
        out: torch.Tensor = torch.sparse.mm(sparse, module(torch.cat([torch.ones(2, 2), nothing])))
        return out

    graph = graph_of(trainable(module, forward))
    assert max(graph.memory_bytes) < 1 << 30
    assert any(tensor.bytes == 0 for tensor in graph.tensors)
