"""Time of collectives and messages over the links of a cluster: rings, trees, and who waits for whose link.

In a cluster file a device's name tells where it stands: `node.device`, or `node.board.device`. Devices under one prefix
are joined by links of their own; two neighbouring prefixes by the links between any of their devices. Solvers reckon in
microseconds (`all_reduce_us`); ranks that run on simulated devices in nanoseconds (`collective_ns`, `message_ns`).
There operations that want the same link (`collective_lanes`, `message_lanes`) go one after the other.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from solvers.ir.errors import InvalidProblem
from solvers.ir.hardware import HOST, Hardware, Link

EFFICIENCY_CLASS = "collective"
"""The operator class under which a device file states what part of the links' rate collectives reach."""

Algorithm = Literal["ring", "tree", "fastest"]
Collective = Literal[
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all", "scatter", "gather", "barrier"
]


def accelerators(cluster: Hardware) -> list[str]:
    """The devices of a cluster in order, without the host."""
    return [device.name for device in cluster.devices if device.name != HOST]


def bus_bytes_per_s(cluster: Hardware, group: Sequence[str]) -> float:
    """The bus bandwidth of a ring (or a mesh) over these devices, at the stated efficiency.

    Inside one prefix it is the least that any device has towards the others, links of one bundle counted once; across
    prefixes the ring is as slow as the slowest crossing. Raises `InvalidProblem` where two parts are not joined.
    """
    reached = cluster.device(group[0]).efficiency.get(EFFICIENCY_CLASS, 1.0)
    return reached * _ring_rate(cluster, tuple(group), 0)


def all_reduce_us(cluster: Hardware, group: Sequence[str], size_bytes: int) -> float:
    """2(t−1)/t · bytes / bus bandwidth + 2(t−1) · latency; 0 for a group of one."""
    return 2 * reduce_scatter_us(cluster, group, size_bytes)


def reduce_scatter_us(cluster: Hardware, group: Sequence[str], size_bytes: int) -> float:
    """(t−1)/t · bytes / bus bandwidth + (t−1) · latency, where every device holds all `size_bytes` before."""
    members = len(group)
    if members == 1:
        return 0.0
    moved = (members - 1) / members * size_bytes
    return moved * 1e6 / bus_bytes_per_s(cluster, group) + (members - 1) * _latency_us(cluster, group)


def all_gather_us(cluster: Hardware, group: Sequence[str], size_bytes: int) -> float:
    """As long as a reduce-scatter, where every device holds all `size_bytes` afterwards."""
    return reduce_scatter_us(cluster, group, size_bytes)


class Lane(NamedTuple):
    """One direction of a bundle of links, or both where they share a rate."""

    bundle: tuple[str, ...]
    towards: str


def collective_ns(
    cluster: Hardware, kind: Collective, group: Sequence[str], size_bytes: int, algorithm: Algorithm = "ring"
) -> int:
    """Nanoseconds of a collective over these devices, rounded up; 0 for a group of one.

    `size_bytes` is what the largest side holds: all of it before a reduce-scatter or scatter, after an all-gather or
    gather, both for the others. With t devices, rate B and latency L (`bus_bytes_per_s`; the largest of the links'):

    * ring: all-reduce 2(t−1)(s/t/B + L); reduce-scatter, all-gather, all-to-all, scatter and gather (t−1)(s/t/B + L);
      broadcast and reduce s/B + (t−1)L, passed on piece by piece;
    * tree: all-reduce 2(s/B + ⌈log₂t⌉L), broadcast and reduce s/B + ⌈log₂t⌉L, piece by piece; the others as by ring.

    `fastest` takes the lesser. A barrier is an all-reduce of nothing.
    """
    members = len(group)
    if members == 1:
        return 0
    per_byte, latency = 1e9 / bus_bytes_per_s(cluster, group), 1e3 * _latency_us(cluster, group)
    around, deep = members - 1, math.ceil(math.log2(members))
    part, whole = size_bytes / members * per_byte, size_bytes * per_byte
    ring = {
        "all_reduce": 2 * around * (part + latency),
        "barrier": 2 * around * latency,
        "broadcast": whole + around * latency,
        "reduce": whole + around * latency,
    }.get(kind, around * (part + latency))
    tree = {
        "all_reduce": 2 * (whole + deep * latency),
        "barrier": 2 * deep * latency,
        "broadcast": whole + deep * latency,
        "reduce": whole + deep * latency,
    }.get(kind, ring)
    # A sum of floats that stands for a whole number of nanoseconds must not be rounded up to the next.
    return math.ceil(round({"ring": ring, "tree": tree, "fastest": min(ring, tree)}[algorithm], 6))


def message_ns(cluster: Hardware, sender: str, receiver: str, size_bytes: int) -> int:
    """Nanoseconds of one message: the link's latency plus bytes over its rate, rounded up.

    Raises `InvalidProblem` where no link joins the two.
    """
    link = _link(cluster, sender, receiver)
    return math.ceil(round(1e3 * link.latency_us + 1e9 * size_bytes / link.bytes_per_s, 6))


def message_lanes(cluster: Hardware, sender: str, receiver: str) -> frozenset[Lane]:
    """What a message from one device to another keeps busy."""
    return frozenset({lane_of(_link(cluster, sender, receiver), receiver)})


def collective_lanes(cluster: Hardware, group: Sequence[str]) -> frozenset[Lane]:
    """What a collective over these devices keeps busy: every link between two of them, in each of its directions."""
    members = set(group)
    return frozenset(
        lane_of(link, end)
        for link in cluster.links
        if _joins(link, members, members)
        for end in ((link.b,) if link.duplex == "simplex" else (link.a, link.b))
    )


def _link(cluster: Hardware, sender: str, receiver: str) -> Link:
    for link in cluster.links:
        if _joins(link, {sender}, {receiver}):
            return link
    raise InvalidProblem(
        f"hardware {cluster.name!r} has no link from {sender!r} to {receiver!r}: add one under links, or let only "
        "neighbours exchange messages"
    )


def lane_of(link: Link, receiver: str) -> Lane:
    """What a transfer over the link to one of its ends keeps busy: its bundle's way there, or all of it if half duplex.

    A bundle between two nodes leads to one of them; any other one leads as its links are written, from a to b, or back.
    """
    if link.duplex == "half":
        return Lane(bundle(link), "")
    if link.shares is None:
        return Lane(bundle(link), receiver)
    nodes = [end.partition(".") for end in (link.a, link.b)]
    if all(dot for _, dot, _ in nodes) and nodes[0][0] != nodes[1][0]:
        return Lane(bundle(link), receiver.partition(".")[0])
    return Lane(bundle(link), "forward" if receiver == link.b else "backward")


def _ring_rate(cluster: Hardware, group: tuple[str, ...], depth: int) -> float:
    parts = _parts(group, depth)
    if len(parts) == 1:
        return _ring_rate(cluster, group, depth + 1)
    if all(len(part) == 1 for part in parts):
        return min(_rate_between(cluster, (name,), set(group) - {name}) for name in group)
    neighbours = [*pairwise(parts), (parts[-1], parts[0])]
    crossing = min(_rate_between(cluster, a, b) for a, b in neighbours)
    return min(crossing, *(_ring_rate(cluster, part, depth + 1) for part in parts if len(part) > 1))


def _parts(group: tuple[str, ...], depth: int) -> list[tuple[str, ...]]:
    """The group split by the component of the names at this depth."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name in group:
        found.setdefault(tuple(name.split(".")[: depth + 1]), []).append(name)
    return [tuple(part) for part in found.values()]


def _rate_between(cluster: Hardware, some: Iterable[str], others: Iterable[str]) -> int:
    """Bytes per second from some devices to others, all links at once, a bundle counted once."""
    here, there = set(some), set(others)
    rates = {bundle(link): link.bytes_per_s for link in cluster.links if _joins(link, here, there)}
    if not rates:
        raise InvalidProblem(
            f"hardware {cluster.name!r} has no link from {sorted(here)} to {sorted(there)}: add one under links"
        )
    return sum(rates.values())


def _joins(link: Link, here: set[str], there: set[str]) -> bool:
    backwards = link.duplex != "simplex" and link.b in here and link.a in there
    return backwards or (link.a in here and link.b in there)


def bundle(link: Link) -> tuple[str, ...]:
    """What shares one rate: the bundle that the link names, or the pair of devices that it joins."""
    return (link.shares,) if link.shares is not None else (link.a, link.b)


def _latency_us(cluster: Hardware, group: Sequence[str]) -> float:
    """The largest latency of the links inside the group: what a ring's step waits for."""
    members = set(group)
    return max(link.latency_us for link in cluster.links if _joins(link, members, members))
