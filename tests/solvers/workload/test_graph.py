"""A stage as an operator graph: its order, its tensors, its memory."""

import pytest

from experiments.hardware import read_hardware
from experiments.shapes import read_shape
from solvers.ir import InvalidProblem, OpGraph
from solvers.workload import LayerCosts, Parallelism, megatron_layer, stage_extras, stage_graph, static_bytes

SHAPE = read_shape("gpt-300m")
PARALLELISM = Parallelism(tensor=2, microbatch=4)
CLUSTER = read_hardware("lynx-nvlink")


@pytest.fixture(scope="module")
def layer() -> LayerCosts:
    return megatron_layer(SHAPE, PARALLELISM, CLUSTER)


def whole(layer: LayerCosts, layers: int) -> OpGraph:
    embedding, head = stage_extras(SHAPE, PARALLELISM, CLUSTER, 0)
    return stage_graph(layer, layers, embedding=embedding, head=head, static_bytes=1000)


def test_the_whole_model_has_thirty_ops_a_layer_and_four_around_them(layer: LayerCosts) -> None:
    graph = whole(layer, 24)
    assert len(graph.ops) == 24 * 30 + 4
    assert [graph.ops[number].name for number in (0, -1)] == ["embedding", "embedding backward"]
    assert graph.layer_of_op is not None
    assert graph.layer_of_op[:3] == (None, 0, 0) and graph.layer_of_op[-2:] == (0, None)
    extra = sum(
        op.time_us for op in graph.ops if op.name in ("embedding", "head", "head backward", "embedding backward")
    )
    assert sum(op.time_us for op in graph.ops) == 24 * (layer.forward_us + layer.backward_us) + extra


def test_every_tensor_is_read_after_it_is_made(layer: LayerCosts) -> None:
    graph = whole(layer, 3)
    for number, op in enumerate(graph.ops):
        for read in op.inputs:
            born = graph.tensor(read).born
            assert born is not None and born < number and number in graph.tensor(read).uses


def test_memory_between_the_passes_is_what_the_layers_keep(layer: LayerCosts) -> None:
    """While the head works: states, embedding mask, each layer's input and needed outputs, and the last output."""
    graph = whole(layer, 3)
    embedding, head = stage_extras(SHAPE, PARALLELISM, CLUSTER, 0)
    at = next(number for number, op in enumerate(graph.ops) if op.name == "head")
    kept = 1000 + embedding.activation_bytes + 3 * layer.kept_bytes + head.activation_bytes
    assert graph.memory_bytes[at] == kept
    assert sum(tensor.bytes for tensor in graph.tensors if tensor.saved) == kept - 1000


def test_a_middle_stage_is_given_its_input_and_its_gradient(layer: LayerCosts) -> None:
    graph = stage_graph(layer, 2)
    given = {tensor.id: tensor for tensor in graph.tensors if tensor.born is None}
    assert set(given) == {"stage input", "gradient from the next stage"}
    assert graph.memory_bytes[0] == 2 * layer.input_bytes + layer.forward[0].output_bytes
    assert given["stage input"].uses[-1] == len(graph.ops) - 1  # the first norm's gradient
    with pytest.raises(InvalidProblem, match="layers is 0"):
        stage_graph(layer, 0)


def test_static_memory_is_there_all_the_time(layer: LayerCosts) -> None:
    states = static_bytes(SHAPE, PARALLELISM, 0, 3)
    with_states, without = stage_graph(layer, 3, static_bytes=states), stage_graph(layer, 3)
    pairs = zip(with_states.memory_bytes, without.memory_bytes, strict=True)
    assert {a - b for a, b in pairs} == {states}
