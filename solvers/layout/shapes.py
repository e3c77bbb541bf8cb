"""The parameters and blocks of a transformer given by its sizes: embedding, layers, head."""

from solvers.ir.hardware import Hardware
from solvers.layout.assumptions import PARAMETER_BYTES
from solvers.layout.blocks import BlockCosts, block_costs
from solvers.layout.chunks import Parameter
from solvers.workload.graph import stage_graph
from solvers.workload.megatron import megatron_layer
from solvers.workload.setting import FULL, HALF
from solvers.workload.shape import ModelShape, Parallelism
from solvers.workload.stage import embedding_extra, head_extra

LAYERS_OF_GRAPH = 3
"""A graph of three layers holds one that has a neighbour on both sides."""


def shape_parameters(shape: ModelShape) -> tuple[Parameter, ...]:
    """All parameters in the order of their first use; block 0 is the embedding, the last one the head.

    Fused projections (queries with keys and values) are one parameter; a gate is one of its own, as is every expert's
    matrix. A tied table is used by the first and the last block.
    """
    head = shape.layers + 1
    tied = (0, head) if shape.tied_embeddings else (0,)
    found = [_parameter("word table", shape.vocab * shape.hidden, *tied)]
    if shape.positions == "learned":
        found.append(_parameter("positions", shape.sequence * shape.hidden, 0))
    for layer in range(shape.layers):
        found += [_parameter(f"layer {layer} {name}", count, layer + 1) for name, count in _of_layer(shape)]
    found += [_parameter(f"final norm {name}", count, head) for name, count in _norm(shape)]
    if not shape.tied_embeddings:
        found.append(_parameter("output table", shape.vocab * shape.hidden, head))
    return tuple(found)


def _parameter(name: str, count: int, *blocks: int) -> Parameter:
    return Parameter(name, PARAMETER_BYTES * count, blocks)


def _norm(shape: ModelShape) -> list[tuple[str, int]]:
    return [("scale", shape.hidden), *([("shift", shape.hidden)] if shape.norm == "layernorm" else [])]


def _of_layer(shape: ModelShape) -> list[tuple[str, int]]:
    """Names and sizes of a layer's parameters in execution order."""
    norm, hidden = _norm(shape), shape.hidden
    found = [(f"norm 1 {name}", count) for name, count in norm]
    found += _linear(shape, "qkv", hidden * shape.qkv_width, shape.qkv_width)
    found += _linear(shape, "projection", hidden * hidden, hidden)
    found += [(f"norm 2 {name}", count) for name, count in norm]
    found += [("router", hidden * shape.experts)] if shape.experts > 1 else []
    for expert in range(shape.experts):
        name = f"expert {expert} " if shape.experts > 1 else ""
        for part in ("gate", "fc1") if shape.gated else ("fc1",):
            found += _linear(shape, name + part, hidden * shape.ffn, shape.ffn)
        found += _linear(shape, f"{name}fc2", hidden * shape.ffn, hidden)
    return found


def _linear(shape: ModelShape, name: str, matrix: int, bias: int) -> list[tuple[str, int]]:
    return [(name, matrix), *([(f"{name} bias", bias)] if shape.bias else [])]


def shape_blocks(shape: ModelShape, samples: int, hardware: Hardware) -> tuple[tuple[str, BlockCosts, bool], ...]:
    """Name, costs and choice of each block of one rank with `samples` samples; only layers have a choice."""
    cut = Parallelism(microbatch=samples)
    layer = _layer(shape, cut, hardware)
    layers = [(f"layer {number}", layer, True) for number in range(shape.layers)]
    first, last = ("embedding", _embedding(shape, cut, hardware), False), ("head", _head(shape, cut, hardware), False)
    return (first, *layers, last)


def _layer(shape: ModelShape, cut: Parallelism, hardware: Hardware) -> BlockCosts:
    """The middle of three layers: kernel by kernel, so that what lives only inside an operator counts."""
    graph = stage_graph(megatron_layer(shape, cut, hardware, group_small=False), LAYERS_OF_GRAPH)
    return block_costs(graph, graph.layer_of_op or (), LAYERS_OF_GRAPH)[LAYERS_OF_GRAPH // 2]


def _embedding(shape: ModelShape, cut: Parallelism, hardware: Hardware) -> BlockCosts:
    """It keeps its dropout mask; while it runs it holds two tensors of the layers' width."""
    extra = embedding_extra(shape, cut, hardware)
    width = 2 * HALF * cut.microbatch * shape.sequence * shape.hidden
    return BlockCosts(extra.forward_us, extra.backward_us, extra.activation_bytes, 0, width, width)


def _head(shape: ModelShape, cut: Parallelism, hardware: Hardware) -> BlockCosts:
    """It keeps the probabilities; besides, forwards the logits in single precision, backwards two half-precision
    gradients: the logits' and its input's. (The half-precision logits themselves are among the fixed bytes.)
    """
    extra = head_extra(shape, cut, hardware)
    tokens = cut.microbatch * shape.sequence
    outer = HALF * tokens * shape.hidden
    forward, backward = FULL * tokens * shape.vocab, HALF * tokens * shape.vocab + outer
    return BlockCosts(extra.forward_us, extra.backward_us, extra.activation_bytes, outer, forward, backward)
