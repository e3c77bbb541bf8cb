"""A layer found in a graph: computed ones come back as they were, a profiled model gives one too."""

import msgspec
import pytest
import torch

from experiments.hardware import read_hardware
from experiments.models.gpt import GptShape
from experiments.shapes import read_shape
from runtime.profile import profile_step
from solvers.ir import InvalidInput, Op, OpGraph, Tensor
from solvers.workload import LayerCosts, Parallelism, layer_from_graph, megatron_layer, stage_extras, stage_graph

CLUSTER = read_hardware("lynx-nvlink")


@pytest.fixture(scope="module")
def profiled() -> OpGraph:
    torch.set_num_threads(1)
    device = torch.device("cpu")
    work = GptShape(layers=4, width=16, heads=2, context=16, batch=2).build(device)
    return profile_step(work.step, device, model=work.model, optimizer=work.optimizer)


def nameless(costs: LayerCosts) -> LayerCosts:
    """Without the layer's name and the operators' classes, which a graph does not tell."""
    forward = tuple(msgspec.structs.replace(op, op_class="other") for op in costs.forward)
    backward = tuple(msgspec.structs.replace(op, op_class="other") for op in costs.backward)
    return msgspec.structs.replace(costs, name="", forward=forward, backward=backward)


@pytest.mark.parametrize("name", ["gpt-300m", "llama-2-7b", "mixtral-8x7b"])
@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("known", [True, False])
def test_a_computed_layer_comes_back(name: str, sequence_parallel: bool, known: bool) -> None:
    """Also where the layers are not told but found: in the middle of embedding and head."""
    shape = read_shape(name)
    parallelism = Parallelism(tensor=4, microbatch=2, sequence_parallel=sequence_parallel)
    costs = megatron_layer(shape, parallelism, CLUSTER)
    embedding, head = stage_extras(shape, parallelism, CLUSTER, 0)
    graph = stage_graph(costs, 4, embedding=embedding, head=head, static_bytes=10)
    if not known:
        graph = msgspec.structs.replace(graph, layer_of_op=None)
    assert nameless(layer_from_graph(graph)) == nameless(costs)


def test_a_profiled_model_gives_its_block(profiled: OpGraph) -> None:
    costs = layer_from_graph(profiled)
    names = [op.name.removeprefix("aten::") for op in costs.forward]
    attention = ["layer_norm", "linear", "scaled_dot_product_attention", "linear", "dropout", "add.Tensor"]
    assert names == [*attention, "layer_norm", "linear", "gelu", "linear", "dropout", "add.Tensor"]
    assert [op.reads_input for op in costs.forward] == [True, *[False] * 4, True, *[False] * 6]
    assert [number for number, needed in enumerate(costs.needed) if not needed] == [3, 9, 11]
    size = 4 * 2 * 16 * 16
    assert costs.input_bytes == costs.forward[-1].output_bytes == costs.backward[-1].output_bytes == size
    weights = [op for op in costs.backward if op.name == "aten::mm" and not op.output_bytes]
    assert len(weights) == 4  # gradients of the four weights are static memory
    assert costs.backward[0].reads_gradient and costs.backward[-1].backward_inputs


def test_times_are_the_mean_of_the_equal_layers() -> None:
    shape, parallelism = read_shape("gpt-300m"), Parallelism(tensor=2, microbatch=1)
    costs = megatron_layer(shape, parallelism, CLUSTER)
    graph = stage_graph(costs, 3)
    slower = tuple(
        msgspec.structs.replace(op, time_us=op.time_us + 3) if layer == 0 else op
        for op, layer in zip(graph.ops, graph.layer_of_op or (), strict=True)
    )
    found = layer_from_graph(msgspec.structs.replace(graph, ops=slower))
    assert found.forward_us == costs.forward_us + len(costs.forward)
    assert found.backward_us == costs.backward_us + len(costs.backward)


def line(*names: str, layer_of_op: tuple[int | None, ...] | None = None) -> OpGraph:
    """A forward pass of ops that each read the tensor of the one before."""
    count = len(names)
    ops = tuple(
        Op(name=name, phase="forward", time_us=1, inputs=(number - 1,) if number else (), outputs=(number,))
        for number, name in enumerate(names)
    )
    uses = [(number, number + 1) if number + 1 < count else (number,) for number in range(count)]
    tensors = tuple(Tensor(id=number, bytes=1, born=number, uses=uses[number]) for number in range(count))
    return OpGraph(name="line", ops=ops, tensors=tensors, memory_bytes=(1,) * count, layer_of_op=layer_of_op)


@pytest.mark.parametrize(
    ("graph", "says"),
    [
        (line("a", "b", "c"), "has no forward ops that repeat: give layer_of_op"),
        (line("a", "b", "a", "b"), "has no layer with forward and backward ops: profile a training step"),
        (line("a", "b", layer_of_op=(None, None)), "has no layer with forward and backward ops"),
    ],
)
def test_graphs_without_layers_are_refused_in_one_sentence(graph: OpGraph, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        layer_from_graph(graph)


def test_layers_joined_by_two_tensors_are_refused() -> None:
    """Layers that are cut in the middle of an attention block hand on its output and the residual."""
    costs = megatron_layer(read_shape("gpt-300m"), Parallelism(tensor=2, microbatch=1), CLUSTER)
    graph = stage_graph(costs, 4)
    assert graph.layer_of_op is not None
    shifted = (*graph.layer_of_op[5:], *[None] * 5)
    with pytest.raises(InvalidInput, match=r"hands on [02-9] outputs in its (forward|backward) pass"):
        layer_from_graph(msgspec.structs.replace(graph, layer_of_op=shifted))
