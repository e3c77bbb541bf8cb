"""From one measured step to a `layout` problem: its repeated layers are the blocks, its parameters the chunks."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import pairwise

from solvers.ir.errors import InvalidInput
from solvers.ir.fields import TensorId
from solvers.ir.graph import OpGraph, Phase
from solvers.ir.hardware import Hardware
from solvers.ir.layout import LayoutProblem
from solvers.layout.assumptions import CONTEXT_BYTES, PARAMETER_BYTES, STATE_BYTES
from solvers.layout.blocks import STATES, block_costs
from solvers.layout.chunks import Parameter, packed
from solvers.layout.make import ALONE, NamedBlock, Rank, Sizes, assemble
from solvers.layout.moves import Moves
from solvers.workload.repeats import repeated_layers


def problem_from_graph(
    graph: OpGraph,
    hardware: Hardware,
    rank: Rank = ALONE,
    *,
    context_bytes: int = CONTEXT_BYTES,
    parameter_bytes: int = PARAMETER_BYTES,
) -> LayoutProblem:
    """The problem of one rank that runs this step, of several alike (ProTrain §3.2: one profiled step).

    Times of blocks are those measured; moves and updates are computed from `hardware`. Optimizer states are as large as
    in the graph, 12 bytes a parameter where it has no optimizer. `parameter_bytes` is the size of one parameter, needed
    to count them. What no block uses is in no chunk: its bytes are fixed (see `remarks`). A layer without backward (it
    and all before it are frozen) keeps nothing and has no choice. Raises `InvalidInput` where no layers repeat, the
    step has no backward, or passes do not run the layers one after the other. Where something reads gradients between
    backward and optimizer (clipping, unscaling), nothing is updated before backward ends, whatever `overlap_update`
    says (see `remarks`).
    """
    layers = _layers(graph)
    places = _places(graph, layers)
    parameters = graph_parameters(graph, places)
    inputs = sum(tensor.bytes for tensor in graph.tensors if tensor.born is None and tensor.kind not in STATES)
    unused = sum(parameter.bytes for parameter in parameters if not parameter.blocks)
    return assemble(
        f"{graph.name}, {rank.ranks} × {hardware.name}",
        _named(graph, layers, places),
        packed(parameters, rank.chunk_bytes),
        Moves.of(hardware, rank.ranks, rank.hosts),
        replace(rank, overlap_update=rank.overlap_update and gradient_reader(graph) is None),
        inputs + unused + context_bytes,
        Sizes(parameter_bytes, _states(graph, parameters)),
    )


def make_layout_problem(graph: OpGraph, hardware: Hardware, budget_bytes: int | None = None) -> LayoutProblem:
    """The problem of this step on one device with so much memory; the device's memory unless given."""
    return problem_from_graph(graph, hardware, Rank(device_bytes=budget_bytes))


def remarks(graph: OpGraph) -> tuple[str, ...]:
    """Sentences on what is odd about this graph: parameters that no block uses, gradients read before the update."""
    names = [one.name for one in graph_parameters(graph, _places(graph, _layers(graph))) if not one.blocks]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    some = "a parameter is" if len(names) == 1 else f"{len(names)} parameters are"
    unused = (f"{some} used nowhere ({shown}): in no chunk, always on the device",) if names else ()
    reader = gradient_reader(graph)
    if reader is None:
        return unused
    return (
        *unused,
        f"{reader} reads gradients between backward and optimizer, as clipping does: no update overlaps with backward",
    )


def gradient_reader(graph: OpGraph) -> str | None:
    """The first op that reads a gradient behind the last backward op, before any touches a parameter or a state."""
    kinds = {tensor.id: tensor.kind for tensor in graph.tensors}
    last = _pass(graph, "backward")[-1]
    for op in graph.ops[last + 1 :]:
        touched = {kinds[name] for name in (*op.inputs, *op.outputs)}
        if not touched.isdisjoint(("parameter", "optimizer")):
            return None
        if any(kinds[name] == "gradient" for name in op.inputs):
            return op.name
    return None


def graph_parameters(graph: OpGraph, places: Sequence[int | None]) -> tuple[Parameter, ...]:
    """The graph's parameters in the order of their first use, unused ones at the end.

    Where the step has an optimizer, a parameter that it does not touch is frozen; else one that only blocks without
    backward use.
    """
    updates = any(op.phase == "optimizer" for op in graph.ops)
    trained = {place for op, place in zip(graph.ops, places, strict=True) if op.phase == "backward"}
    found = []
    for tensor in graph.tensors:
        if tensor.kind == "parameter" and tensor.bytes:
            phases = {graph.ops[use].phase for use in tensor.uses}
            used = [use for use in tensor.uses if places[use] is not None]
            blocks = {place for place in (places[use] for use in used) if place is not None}
            trainable = "optimizer" in phases if updates else not blocks.isdisjoint(trained)
            one = Parameter(_name(tensor.id), tensor.bytes, tuple(sorted(blocks)), trainable)
            found.append((min(used, default=len(graph.ops)), one))
    return tuple(one for _, one in sorted(found, key=lambda pair: pair[0]))


def _name(number: TensorId) -> str:
    return f"tensor {number}" if isinstance(number, int) else number


def _states(graph: OpGraph, parameters: Sequence[Parameter]) -> float:
    """Bytes of optimizer states per byte of what is trained."""
    if not any(op.phase == "optimizer" for op in graph.ops):
        return STATE_BYTES / PARAMETER_BYTES
    states = sum(tensor.bytes for tensor in graph.tensors if tensor.kind == "optimizer")
    trained = sum(parameter.bytes for parameter in parameters if parameter.trainable)
    return states / trained if trained else 0.0


def _named(graph: OpGraph, layers: Sequence[int | None], places: Sequence[int | None]) -> list[NamedBlock]:
    """Blocks with their names; only layers that have a backward have a choice, of others a checkpoint keeps nothing."""
    count = max(place for place in places if place is not None) + 1
    passes: dict[str, set[int]] = {"forward": set(), "backward": set()}
    for op, place, layer in zip(graph.ops, places, layers, strict=True):
        if place is not None and layer is not None:
            passes[op.phase].add(place)
    inside, trained = passes["forward"], passes["backward"]
    first = min(inside)
    names = [
        f"layer {place - first}" if place in inside else "first" if place < first else "last" for place in range(count)
    ]
    costs = [
        replace(cost, input_bytes=0) if place in inside - trained else cost
        for place, cost in enumerate(block_costs(graph, places, count))
    ]
    return [(name, cost, place in trained) for place, (name, cost) in enumerate(zip(names, costs, strict=True))]


def _layers(graph: OpGraph) -> Sequence[int | None]:
    return graph.layer_of_op if graph.layer_of_op is not None else repeated_layers(graph)


def _places(graph: OpGraph, layers: Sequence[int | None]) -> list[int | None]:
    """The block of each op: what runs before the first layer, the layers, what runs behind the last; None: optimizer.

    What runs between two layers belongs to the one before it.
    """
    forward, backward = _pass(graph, "forward"), _pass(graph, "backward")
    order = list(dict.fromkeys(layer for layer in (layers[op] for op in forward) if layer is not None))
    trained = {layer for layer in (layers[op] for op in backward) if layer is not None}
    if not order or not backward or not trained <= set(order):
        raise InvalidInput(
            f"graph {graph.name!r} lacks repeated layers with forward ops, or any backward: profile a step that trains "
            "the model, or give layer_of_op"
        )
    _require_frozen(graph, layers, {*order} - trained)
    ahead = int(layers[forward[0]] is None)
    numbers = {layer: number + ahead for number, layer in enumerate(order)}
    behind = layers[forward[-1]] is None
    places: list[int | None] = [None] * len(graph.ops)
    last = ahead + len(order) - (not behind)
    lowest = min((numbers[layer] for layer in trained), default=last)
    _fill(places, forward, layers, numbers, 0, last)
    _fill(places, backward, layers, numbers, last, lowest if lowest > ahead else 0)
    for ops, sign in ((forward, 1), (backward, -1)):
        if any(sign * (places[after] or 0) < sign * (places[before] or 0) for before, after in pairwise(ops)):
            raise InvalidInput(
                f"graph {graph.name!r} does not run its layers one after the other: give a layer_of_op that does"
            )
    return places


def _require_frozen(graph: OpGraph, layers: Sequence[int | None], still: AbstractSet[int | None]) -> None:
    """Backward uses no parameter of a layer that has no backward ops."""
    for tensor in graph.tensors if still else ():
        forward = {layers[use] for use in tensor.uses if graph.ops[use].phase == "forward"}
        again = any(graph.ops[use].phase == "backward" for use in tensor.uses)
        if tensor.kind == "parameter" and again and forward and forward <= still:
            raise InvalidInput(
                f"graph {graph.name!r} has a layer without backward ops, though backward uses {_name(tensor.id)!r}, a "
                "parameter of it: give a layer_of_op that says which ops are its backward"
            )


def _pass(graph: OpGraph, phase: Phase) -> list[int]:
    return [number for number, op in enumerate(graph.ops) if op.phase == phase]


def _fill(
    places: list[int | None],
    ops: Sequence[int],
    layers: Sequence[int | None],
    numbers: dict[int, int],
    before: int,
    behind: int,
) -> None:
    """Give each op of a pass its block: `before` until the first layer begins, `behind` when the last one has ended."""
    last = max((op for op in ops if layers[op] is not None), default=ops[-1])
    current = before
    for op in ops:
        layer = layers[op]
        current = numbers[layer] if layer is not None else behind if op > last else current
        places[op] = current
