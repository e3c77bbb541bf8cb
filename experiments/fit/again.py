"""A computed step in which some operators of the forward pass run again right before a layer's backward pass."""

from collections.abc import Collection, Iterator, Sequence

import msgspec

from solvers.ir.fields import TensorId
from solvers.ir.graph import Op, OpGraph, Phase, Tensor
from solvers.workload.graph import live_bytes


def run_again(graph: OpGraph, again: Collection[int]) -> OpGraph:
    """The graph with the operators of `again` repeated before their layer's backward pass.

    What they made goes after its last use in the forward pass, and is there again from the repetition to its last use.
    Repetitions are operators of the backward pass.
    """
    return _unrolled(graph, list(_order(graph, frozenset(again))))


def _order(graph: OpGraph, again: Collection[int]) -> Iterator[int]:
    """The operators in the order in which they run, those of `again` twice."""
    layers, begun = graph.layer_of_op or (None,) * len(graph.ops), set[int]()
    for number, op in enumerate(graph.ops):
        layer = layers[number]
        if op.phase == "backward" and layer is not None and layer not in begun:
            begun.add(layer)
            yield from (one for one in sorted(again) if layers[one] == layer)
        yield number


def _unrolled(graph: OpGraph, order: Sequence[int]) -> OpGraph:
    sizes = {tensor.id: tensor for tensor in graph.tensors}
    name: dict[TensorId, TensorId] = {tensor.id: tensor.id for tensor in graph.tensors if tensor.born is None}
    uses: dict[TensorId, list[int]] = {}
    made: dict[TensorId, tuple[TensorId, int]] = {}
    ops, seen = list[Op](), set[int]()
    for place, number in enumerate(order):
        op = graph.ops[number]
        repeats = number in seen
        seen.add(number)
        outputs = []
        for one in op.outputs:
            fresh: TensorId = f"{one} (again)" if repeats else one
            name[one] = fresh
            made[fresh] = (one, place)
            outputs.append(fresh)
        inputs = tuple(name[one] for one in op.inputs)
        for one in {*inputs, *outputs}:
            uses.setdefault(one, []).append(place)
        phase: Phase = "backward" if repeats else op.phase
        title = f"{op.name} (again)" if repeats else op.name
        ops.append(msgspec.structs.replace(op, name=title, phase=phase, inputs=inputs, outputs=tuple(outputs)))
    before = [tensor for tensor in graph.tensors if tensor.born is None]
    tensors = [
        *(msgspec.structs.replace(one, uses=tuple(uses.get(one.id, ()))) for one in before),
        *(_instance(sizes[one], fresh, place, uses[fresh], ops) for fresh, (one, place) in made.items()),
    ]
    layers = graph.layer_of_op
    return msgspec.structs.replace(
        graph,
        ops=tuple(ops),
        tensors=tuple(tensors),
        memory_bytes=live_bytes(tensors, len(ops)),
        layer_of_op=None if layers is None else tuple(layers[number] for number in order),
    )


def _instance(tensor: Tensor, name: TensorId, place: int, uses: Sequence[int], ops: Sequence[Op]) -> Tensor:
    forward = ops[place].phase == "forward"
    saved = forward and any(ops[use].phase != "forward" for use in uses)
    return msgspec.structs.replace(tensor, id=name, born=place, uses=tuple(uses), saved=saved)
