"""What a decided step costs action by action, launches, copies and moves: from its profile and the device's figures."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from runtime.profile.memory import MemoryProfile, ProfiledBlock
from solvers.ir.hardware import HOST, Hardware, Link
from solvers.ir.layout import LayoutPlan
from solvers.timeline.cost import NOTHING, Cost, one_launch, together
from solvers.timeline.layout_launched import LayoutCosts, Piece


def copy_ns(hardware: Hardware, moved_bytes: int) -> int:
    """A kernel that copies on the device, which reads and writes these bytes."""
    device = hardware.device()
    return math.ceil(moved_bytes * 1e9 / (device.bytes_per_s * device.efficiency.get("copy", 1.0)))


def narrowed(hardware: Hardware, parameters: Sequence[nn.Parameter], size: int, wide: int) -> Cost:
    """What it costs to bring the numbers of wider masters into the parameters on the device, one by one."""
    launch_ns = round(hardware.device().launch_us * 1000)
    costs = [one_launch(launch_ns, copy_ns(hardware, one.numel() * (size + wide))) for one in parameters]
    return together(costs if size != wide else [NOTHING])


def transfer_ns(link: Link, size_bytes: int) -> int:
    """One copy over a link."""
    return round(link.latency_us * 1000) + math.ceil(size_bytes * 1e9 / link.bytes_per_s)


@dataclass(frozen=True)
class Members:
    """The parameters of each chunk by name, the chunks' bytes on their way, and those of a number there and at home.

    `host_ns` is what the host does for a number.
    """

    names: Sequence[Sequence[str]]
    chunk_bytes: Sequence[int]
    parameter_bytes: int
    master_bytes: int
    host_ns: float


def layout_costs(
    profile: MemoryProfile,
    hardware: Hardware,
    plan: LayoutPlan,
    members: Members,
    device_update: Mapping[int, Cost],
) -> LayoutCosts | None:
    """The costs of a plan's actions; None where the profile does not tell what its passes cost."""
    blocks = (profile.first, *profile.blocks, profile.last)
    if any(block.forward is None or block.backward is None for block in blocks):
        return None
    chunk_of = {name: number for number, names in enumerate(members.names) for name in names}
    launch_ns, device = round(hardware.device().launch_us * 1000), hardware.device().name
    out, into = hardware.link(device, HOST), hardware.link(HOST, device)
    moves = _moves(profile, hardware, plan, members, chunk_of)
    backward = tuple(_pieces(block, moves, chunk_of) for block in blocks)
    arrive = Counter(chunk for pieces in backward for _, chunk in pieces if chunk is not None)
    counts = [
        sum(one.bytes for one in profile.parameters if one.trainable and one.name in set(names))
        // members.parameter_bytes
        for names in members.names
    ]
    return LayoutCosts(
        launch_ns=launch_ns,
        forward=tuple(block.forward or NOTHING for block in blocks),
        recompute=tuple(block.recompute or NOTHING for block in blocks),
        backward=backward,
        leaving=tuple(tuple(transfer_ns(out, size) for size in block.own_bytes) for block in blocks),
        coming=tuple(tuple(transfer_ns(into, size) for size in block.own_bytes) for block in blocks),
        load_ns=tuple(transfer_ns(into, size) for size in members.chunk_bytes),
        offload_ns=tuple(transfer_ns(out, size) for size in members.chunk_bytes),
        cpu_update_ns=tuple(math.floor(count * members.host_ns) for count in counts),
        device_update=device_update,
        gradients=tuple(arrive[number] for number in range(len(members.names))),
    )


def _moves(
    profile: MemoryProfile, hardware: Hardware, plan: LayoutPlan, members: Members, chunk_of: Mapping[str, int]
) -> dict[str, Cost]:
    """Each gradient's move to where it stays: over its parameter, or, of a persistent chunk, beside its master."""
    launch_ns, wider = round(hardware.device().launch_us * 1000), members.master_bytes / members.parameter_bytes
    found = {}
    for one in profile.parameters:
        times = 1 + wider if chunk_of.get(one.name) in plan.persistent else 2
        found[one.name] = one_launch(launch_ns, copy_ns(hardware, round(times * one.bytes)))
    return found


def _pieces(block: ProfiledBlock, moves: Mapping[str, Cost], chunk_of: Mapping[str, int]) -> tuple[Piece, ...]:
    """The backward pass, cut where a gradient has come and moved."""
    pieces: list[Piece] = []
    total = NOTHING
    for cost, name in block.backward or ():
        total = total.then(cost)
        if name is not None and name in chunk_of:
            pieces.append((total.then(moves[name]), chunk_of[name]))
            total = NOTHING
    return (*pieces, (total, None)) if block.backward else ()
