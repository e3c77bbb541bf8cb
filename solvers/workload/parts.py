"""A measured step taken apart: what its layers cost, and what stands before and behind them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from solvers.ir.errors import InvalidInput
from solvers.ir.graph import OpGraph, Phase, Tensor
from solvers.workload.repeats import repeated_layers

Part = Literal["first", "layers", "last"]
Place = int | Part
"""The layer that an op belongs to; an op between two layers belongs to all of them ("layers")."""
STATES = ("parameter", "gradient", "optimizer")


@dataclass(frozen=True)
class Shares:
    """A sum over the whole step, by the part of the model that it falls to."""

    first: int
    layers: int
    last: int

    @property
    def total(self) -> int:
        """All three."""
        return self.first + self.layers + self.last


@dataclass(frozen=True)
class MeasuredParts:
    """Times in µs of one microbatch's passes, and bytes; `layers` are counted together.

    A parameter that both ends use (a tied table) counts at both, one that several layers use once for each: stages do
    not share memory. Gradients and optimizer states lie where their parameters do, in proportion. Activations are what
    the forward pass makes and the backward pass reads. `message_bytes` is the most that a layer hands on.
    """

    count: int
    forward_us: Shares
    backward_us: Shares
    parameter_bytes: Shares
    state_bytes: Shares
    activation_bytes: Shares
    message_bytes: int
    peak_bytes: int


def measured_parts(graph: OpGraph) -> MeasuredParts:
    """The parts of a step of one microbatch; raises `InvalidInput` where no layer has both passes."""
    places = _places(graph)
    count = len({place for place in places if isinstance(place, int)})
    parameters = [tensor for tensor in graph.tensors if tensor.kind == "parameter"]
    others = [tensor for tensor in graph.tensors if tensor.kind not in STATES and tensor.born is None]
    held = _shares(_homes(graph, places, parameters))
    states = sum(tensor.bytes for tensor in graph.tensors if tensor.kind in STATES)
    apart = _shares(_homes(graph, places, others))
    return MeasuredParts(
        count=count,
        forward_us=_times(graph, places, "forward"),
        backward_us=_times(graph, places, "backward"),
        parameter_bytes=held,
        state_bytes=_with_states(held, sum(tensor.bytes for tensor in parameters), states, apart),
        activation_bytes=_shares(_kept(graph, places)),
        message_bytes=_message_bytes(graph, places),
        peak_bytes=max(size for size, op in zip(graph.memory_bytes, graph.ops, strict=True) if op.phase != "optimizer"),
    )


def _places(graph: OpGraph) -> list[Place | None]:
    """Where each op belongs; None for the optimizer's. The backward pass meets the last part of the model first."""
    layers = graph.layer_of_op if graph.layer_of_op is not None else repeated_layers(graph)
    places: list[Place | None] = [None] * len(graph.ops)
    ends: dict[Phase, tuple[Part, Part]] = {"forward": ("first", "last"), "backward": ("last", "first")}
    for phase, (before, behind) in ends.items():
        numbers = [number for number, op in enumerate(graph.ops) if op.phase == phase]
        inside = [number for number in numbers if layers[number] is not None]
        if not inside:
            raise InvalidInput(
                f"graph {graph.name!r} has no layer with {phase} ops: profile a training step of a model with repeated "
                "layers, or give layer_of_op"
            )
        for number in numbers:
            layer = layers[number]
            outside = before if number < inside[0] else behind if number > inside[-1] else "layers"
            places[number] = outside if layer is None else layer
    return places


def _times(graph: OpGraph, places: Sequence[Place | None], phase: Phase) -> Shares:
    timed = zip(graph.ops, places, strict=True)
    return _shares((place, op.time_us) for op, place in timed if place is not None and op.phase == phase)


def _homes(graph: OpGraph, places: Sequence[Place | None], tensors: Iterable[Tensor]) -> list[tuple[Place, int]]:
    """Each place whose forward pass (failing that, whose backward pass) uses a tensor; "layers" where none does."""
    found: list[tuple[Place, int]] = []
    for tensor in tensors:
        used: dict[Phase, set[Place]] = {"forward": set(), "backward": set(), "optimizer": set()}
        for use in tensor.uses:
            place = places[use]
            if place is not None:
                used[graph.ops[use].phase].add(place)
        homes = used["forward"] or used["backward"] or {"layers"}
        found += [(home, tensor.bytes) for home in homes]
    return found


def _with_states(held: Shares, parameters: int, states: int, apart: Shares) -> Shares:
    """Gradients and optimizer states beside the parameters, rounded up, and what else is there before the step."""
    if not parameters:
        return Shares(apart.first, apart.layers + states, apart.last)
    return Shares(
        -(-held.first * states // parameters) + apart.first,
        -(-held.layers * states // parameters) + apart.layers,
        -(-held.last * states // parameters) + apart.last,
    )


def _kept(graph: OpGraph, places: Sequence[Place | None]) -> Iterable[tuple[Place, int]]:
    for tensor in graph.tensors:
        if tensor.born is None or tensor.kind in STATES or graph.ops[tensor.born].phase != "forward":
            continue
        place = places[tensor.born]
        read = tensor.saved or any(graph.ops[use].phase == "backward" for use in tensor.uses)
        if read and place is not None:
            yield place, tensor.bytes


def _message_bytes(graph: OpGraph, places: Sequence[Place | None]) -> int:
    """The most bytes that a layer's forward pass makes for forward ops outside of it."""
    handed: Counter[int] = Counter()
    for tensor in graph.tensors:
        place = None if tensor.born is None or graph.ops[tensor.born].phase != "forward" else places[tensor.born]
        if isinstance(place, int):
            leaves = any(graph.ops[use].phase == "forward" and places[use] != place for use in tensor.uses)
            handed[place] += tensor.bytes if leaves else 0
    return max(handed.values(), default=0)


def _shares(parts: Iterable[tuple[Place, int]]) -> Shares:
    sums: Counter[Part] = Counter()
    for place, amount in parts:
        sums["layers" if isinstance(place, int) else place] += amount
    return Shares(sums["first"], sums["layers"], sums["last"])
