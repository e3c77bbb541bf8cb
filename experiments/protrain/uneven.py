"""Layout problems of models whose layers are not alike: the machine and the rules of `Testbed`, other layers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from experiments.protrain.setting import GIB, Testbed
from experiments.reproduction import Cells
from solvers.ir.errors import InvalidInput
from solvers.ir.layout import LayoutProblem
from solvers.layout.assumptions import CONTEXT_BYTES, LOGIT_BYTES, TOKEN_BYTES
from solvers.layout.blocks import BlockCosts
from solvers.layout.chunks import Parameter, packed
from solvers.layout.make import NamedBlock, Rank, assemble
from solvers.layout.moves import Moves
from solvers.layout.shapes import shape_blocks, shape_parameters
from solvers.workload import ModelShape


@dataclass(frozen=True)
class Layer:
    """One layer: a layer of that shape; a frozen one has no gradients of its own parameters."""

    shape: ModelShape
    frozen: bool = False


Layers = tuple[ModelShape, list[Layer]]
"""The shape of embedding and head, and the layers between them."""


def layers_of(cells: Cells, case: Mapping[str, Any], sequence: int) -> Layers:
    """The layers that a case of an entry names.

    `shape` is that of all of them, with `changes` of its fields; `every` Nth (the second, fourth … for 2) may be of
    another shape `other`, or be the only ones that are `trained`; the middle third may see a `shortened` sequence, as
    many times shorter.
    """
    ends = msgspec.structs.replace(cells.shape(case["shape"]), sequence=sequence, **case.get("changes", {}))
    every = case.get("every", 1)
    layers = []
    for number in range(ends.layers):
        special = (number + 1) % every == 0
        other = case.get("other") if special else None
        shape = ends if other is None else msgspec.structs.replace(cells.shape(other), sequence=sequence)
        middle = ends.layers // 3 <= number < ends.layers - ends.layers // 3
        if middle and "shortened" in case:
            shape = msgspec.structs.replace(shape, sequence=sequence // case["shortened"])
        layers.append(Layer(shape, frozen=bool(case.get("trained")) and not special))
    return ends, layers


def case_problem(place: Testbed, layers: Layers, case: Mapping[str, Any]) -> LayoutProblem:
    """The problem of a case: its `batch`, and if it says so `host_gib` of memory in place of the machine's."""
    ends, inner = layers
    host_bytes = int(case["host_gib"] * GIB) if "host_gib" in case else None
    return uneven_problem(place, ends, inner, case["batch"], name=ends.name, host_bytes=host_bytes)


def uneven_problem(
    place: Testbed,
    ends: ModelShape,
    layers: Sequence[Layer],
    batch: int,
    *,
    name: str,
    host_bytes: int | None = None,
) -> LayoutProblem:
    """The problem of a rank: embedding and head of `ends` (frozen if any layer is), between them these layers.

    With layers all of the shape `ends` it is `problem_from_shape`'s, but for the name. Raises `InvalidInput` where
    the batch is no multiple of the ranks, or widths differ.
    """
    if batch < 1 or batch % place.ranks:
        raise InvalidInput(f"batch is {batch} for {place.ranks} ranks: give a multiple of the ranks")
    for layer in layers:
        if layer.shape.hidden != ends.hidden:
            raise InvalidInput(
                f"a layer is {layer.shape.hidden} wide between ends of {ends.hidden}: give shapes of one width"
            )
    samples = batch // place.ranks
    tokens = samples * ends.sequence
    return assemble(
        name,
        _blocks(place, ends, layers, samples),
        packed(tuple(_parameters(ends, layers)), None),
        Moves.of(place.hardware, place.ranks, place.hosts),
        Rank(place.ranks, place.hosts, host_bytes=host_bytes),
        tokens * (TOKEN_BYTES + LOGIT_BYTES * ends.vocab) + CONTEXT_BYTES,
    )


def _blocks(place: Testbed, ends: ModelShape, layers: Sequence[Layer], samples: int) -> list[NamedBlock]:
    first, _, last = shape_blocks(msgspec.structs.replace(ends, layers=1), samples, place.hardware)
    costs = {
        layer: shape_blocks(msgspec.structs.replace(layer.shape, layers=1), samples, place.hardware)[1][1]
        for layer in dict.fromkeys(layers)
    }
    inner = [(f"layer {number}", _costs(costs[layer], layer), True) for number, layer in enumerate(layers)]
    return [first, *inner, last]


def _costs(costs: BlockCosts, layer: Layer) -> BlockCosts:
    """A frozen layer's backward makes gradients of its input only: as many operations as its forward.

    What it saves for them is counted in full, though the inputs of its matrices would not be needed.
    """
    return replace(costs, backward_us=costs.forward_us) if layer.frozen else costs


def _parameters(ends: ModelShape, layers: Sequence[Layer]) -> Iterator[Parameter]:
    """Those of the ends, and of each layer those of the one layer that its shape has; in order of their first use."""
    trained = not any(layer.frozen for layer in layers)
    last = len(layers) + 1
    outer = [one for one in shape_parameters(msgspec.structs.replace(ends, layers=1)) if one.blocks != (1,)]
    moved = [
        Parameter(one.name, one.bytes, tuple(last if block else 0 for block in one.blocks), trained) for one in outer
    ]
    yield from (one for one in moved if one.blocks[0] == 0)
    for number, layer in enumerate(layers):
        for one in shape_parameters(msgspec.structs.replace(layer.shape, layers=1)):
            if one.blocks == (1,):
                yield Parameter(f"layer {number} {one.name}", one.bytes, (number + 1,), not layer.frozen)
    yield from (one for one in moved if one.blocks[0] == last)
