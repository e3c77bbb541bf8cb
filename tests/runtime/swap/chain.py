"""A made-up training iteration: a chain of layers whose activations the backward pass needs in reverse order."""

from typing import NamedTuple

from msgspec.structs import replace

from runtime.swap.profiled import Profiled
from solvers.ir.graph import Op, OpGraph, Tensor
from solvers.ir.hardware import HOST, Device, Hardware, Link

STATIC_BYTES = 1 << 20
LAYER_BYTES = 1 << 20
FORWARD_ID, BACKWARD_ID, UPDATE_ID = 3, 5, 7


class Seen(NamedTuple):
    """A sighting as the engine tells of it."""

    op: int
    storage: int
    key: int
    ordinal: int
    position: int
    result: bool
    pass_bytes: int


def hardware(bytes_per_s: int = 16_000_000_000) -> Hardware:
    """A device whose link moves a layer's activation in some 70 µs."""
    device = Device(name="0", memory_bytes=1 << 30)
    return Hardware(
        name="made up", devices=(device,), links=(Link(a="0", b=HOST, bytes_per_s=bytes_per_s, latency_us=1.0),)
    )


def chain_graph(layers: int, op_us: int = 100) -> OpGraph:
    """Forward op j makes tensor j, its mirror in the backward pass uses it last, then parameters change."""
    forward = [Op(name="layer", phase="forward", time_us=op_us, outputs=(layer,)) for layer in range(layers)]
    backward = [
        Op(name="layer backward", phase="backward", time_us=op_us, inputs=(layer,)) for layer in reversed(range(layers))
    ]
    tensors = tuple(
        Tensor(
            id=layer,
            bytes=LAYER_BYTES,
            born=layer,
            uses=(layer, 2 * layers - 1 - layer),
            saved=True,
            kind="activation",
        )
        for layer in range(layers)
    )
    rising = [STATIC_BYTES + (layer + 1) * LAYER_BYTES for layer in range(layers)]
    return OpGraph(
        name="chain",
        ops=(*forward, *backward, Op(name="update", phase="optimizer", time_us=op_us)),
        tensors=tensors,
        memory_bytes=(*rising, *reversed(rising), STATIC_BYTES),
    )


def chain_operators(layers: int) -> list[int]:
    """The operators' ids."""
    return [FORWARD_ID] * layers + [BACKWARD_ID] * layers + [UPDATE_ID]


def chain_profiled(layers: int, unseen: frozenset[int] = frozenset()) -> Profiled:
    """The iteration in detail; all activations look alike, so that their ordinals tell them apart."""
    sightings = {
        (layer, layer): Seen(
            op=layer, storage=1000 + layer, key=99, ordinal=layer, position=0, result=True, pass_bytes=layer << 10
        )
        for layer in range(layers)
        if layer not in unseen
    }
    phases = bytes([0] * layers + [2] * layers + [3])
    return Profiled(chain_graph(layers), chain_operators(layers), phases, sightings)  # type: ignore[arg-type]


def with_state(profiled: Profiled, state_bytes: int = LAYER_BYTES) -> Profiled:
    """The same iteration with a state that the update uses."""
    graph, update = profiled.graph, len(profiled.graph.ops) - 1
    state = Tensor(id=len(graph.tensors), bytes=state_bytes, uses=(update,), kind="optimizer")
    seen = Seen(op=update, storage=2000, key=77, ordinal=0, position=0, result=False, pass_bytes=0)
    grown = replace(
        graph,
        tensors=(*graph.tensors, state),
        memory_bytes=tuple(held + state_bytes for held in graph.memory_bytes),
    )
    return profiled._replace(graph=grown, sightings={**profiled.sightings, (len(graph.tensors), update): seen})  # type: ignore[dict-item]
