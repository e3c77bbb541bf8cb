"""What launching each op of a joint problem takes, where the device tells."""

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Literal

from msgspec.structs import replace

from runtime.profile.launches import DEVICE, OPERATOR, STREAM, Measured, launches
from runtime.recompute.graph import OTHER, Step
from runtime.recompute.in_turn import NOTHING, at_its_end, joined, stalled
from runtime.recompute.launches import BlockLaunches
from runtime.recompute.layer import Layer
from solvers.ir.joint import JointOp


def with_launches(
    ops: Sequence[JointOp], step: Step, layers: Sequence[Layer], free: Collection[int]
) -> list[JointOp] | None:
    """The ops with their times, whole µs in sum, too, what launching takes, and what the host reads or waits for.

    Those of `free` take nothing. None where the device does not tell.
    What a block's forward pass has beside its units, and what is behind it, its output has; what is behind the last
    block, the ops of its parts, of which the last is the loss; the op before its first unit, what comes before that, if
    the host waits there. Where the program does something between two blocks, the op that stands for that has its
    waits: moves come before them.
    """
    told = [layer.launches for layer in layers if layer.launches is not None]
    if len(told) < len(layers):
        return None
    parts, _ = parts_of(step, layers, told, free)
    waits = [NOTHING if op.comm else one for op, one in zip(ops, _waits(parts, step, layers, told), strict=True)]
    reads = [round(one.read_ns / 1000) for one in waits]
    return [
        replace(
            op,
            time_us=one.device_us,
            launch_us=one.host_us,
            again_launch_us=_again_launch_us(step, layers, number),
            tail_us=one.tail_us,
            host_waits=wait.host_waits & OPERATOR > 0 and not read_us,
            sync=_sync(wait.host_waits),
            read_us=read_us,
            sent_us=round(wait.sent_ns / 1000),
        )
        for number, (op, wait, one, read_us) in enumerate(zip(ops, waits, launches(parts), reads, strict=True))
    ]


def parts_of(
    step: Step, layers: Sequence[Layer], told: Sequence[BlockLaunches], free: Collection[int]
) -> tuple[list[Measured], int]:
    """By op, without what is launched ahead; also how far the host is still ahead then, as in `_less`."""
    parts = [
        joined([NOTHING if op in free else _measured(step, op, layers, told), *_before_units(step, layers, op + 1)])
        for op in range(len(step.places))
    ]
    return _less(parts, told[0].ahead_ns)


def _waits(
    parts: Sequence[Measured], step: Step, layers: Sequence[Layer], told: Sequence[BlockLaunches]
) -> list[Measured]:
    """The parts by what the host waits for and reads in each; times are those of `parts` alone."""
    found = list(parts)
    for op, (place, following) in enumerate(pairwise(step.places)):
        if place.kind == "output" and following == OTHER and place.block + 1 < len(layers):
            found[op] = joined(_beside_units(layers[place.block], told[place.block]))
            found[op + 1] = joined([found[op + 1], *told[place.block].behind])
    return found


def _again_launch_us(step: Step, layers: Sequence[Layer], op: int) -> int | None:
    """What the host takes to launch it where it runs again; None where the device does not tell, or it never did."""
    place = step.places[op]
    told = layers[place.block].launches
    if place.kind != "unit" or told is None:
        return None
    found = [told.again[node] for node in layers[place.block].units[place.index].nodes]
    known = [one.host_ns for one in found if one is not None]
    return round(sum(known) / 1000) if len(known) == len(found) else None


def _less(parts: Sequence[Measured], ahead_ns: int) -> tuple[list[Measured], int]:
    """What the host launches while it is so far ahead takes none of the step's time; also what it is ahead at the end.

    Where it waits within a part, it is ahead again by what it launched behind that.
    """
    found = []
    for raw in parts:
        one = at_its_end(raw)
        saved_ns, least_ns = min(ahead_ns, one.host_ns), one.device_ns if one.host_waits else 0
        ahead_ns = max(0, raw.end_ns - raw.host_ns) if one.host_waits else ahead_ns - saved_ns
        found.append(one._replace(host_ns=one.host_ns - saved_ns, end_ns=max(least_ns, one.end_ns - saved_ns)))
    return found, ahead_ns


def _measured(step: Step, op: int, layers: Sequence[Layer], told: Sequence[BlockLaunches]) -> Measured:
    place, before = step.places[op], step.places[op - 1]
    layer, own = layers[place.block], told[place.block]
    if place.kind == "unit":
        nodes = layer.units[place.index].nodes
        return joined(own.nodes[node] for node in (*nodes, *_read_behind(layer, nodes[-1])))
    if place.kind == "output":
        return joined([*_beside_units(layer, own), *(own.behind if place.block + 1 < len(layers) else ())])
    if place.kind in ("behind", "loss"):
        began = before.index + 1 if before.kind == "behind" else 0
        return joined(told[-1].behind[began : place.index + 1 if place.kind == "behind" else None])
    if place.kind == "wait":
        return stalled(NOTHING, layer.backward_waits_us[place.index])
    if place.kind in ("begin", "held") and own.held:
        ends = [0, *(count + 1 for count in own.held), len(own.within)]
        return joined(own.within[ends[place.index] : ends[place.index + 1]])
    if place.kind in ("begin", "part"):
        return own.backward[0 if place.kind == "begin" else place.index + 1]
    return own.backward[-1] if place.kind == "end" and place.index >= 0 else NOTHING


def _beside_units(layer: Layer, own: BlockLaunches) -> list[Measured]:
    """What a block's forward pass has that is no unit's, and not read behind one."""
    known = {node for unit in layer.units for one in unit.nodes for node in (one, *_read_behind(layer, one))}
    known |= {*range(units_begin(layer))} if waits_before_units(layer) else set()
    return [*(one for node, one in enumerate(own.nodes) if node not in known), own.forward]


def units_begin(layer: Layer) -> int:
    """The node with which a block's units begin."""
    return min((unit.nodes[0] for unit in layer.units), default=0)


def waits_before_units(layer: Layer) -> bool:
    """Whether the host waits in its forward pass before they do."""
    return joined(_first_parts(layer)).tells_host


def waits_within(layer: Layer) -> Sequence[int]:
    """After how many operators of its backward pass the host waits."""
    return () if layer.launches is None else layer.launches.held


def _before_units(step: Step, layers: Sequence[Layer], op: int) -> list[Measured]:
    """What comes before a block's units, if that op is the first of them and the host waits there."""
    place = step.places[op] if op < len(step.places) else None
    first = place is not None and place.kind == "unit" and place.index == 0 and waits_before_units(layers[place.block])
    return _first_parts(layers[place.block]) if place is not None and first else []


def _first_parts(layer: Layer) -> list[Measured]:
    told = layer.launches
    return [] if told is None else [told.before, *told.nodes[: units_begin(layer)]]


def _sync(waits: int) -> Literal["stream", "device"] | None:
    """What the program asked to wait for between operators."""
    return "device" if waits & DEVICE else "stream" if waits & STREAM else None


def _read_behind(layer: Layer, node: int) -> list[int]:
    """Nodes of no unit behind which the host waits, or is sent something, until the next that a unit has, if any."""
    assert layer.launches is not None
    end = min((one for unit in layer.units for one in unit.nodes if one > node), default=node)
    return [one for one in range(node + 1, end) if layer.launches.nodes[one].tells_host]
