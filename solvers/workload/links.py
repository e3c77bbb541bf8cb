"""Time of collectives and of messages between stages, from the links of a cluster (README.md §4).

In a cluster file a device's name tells where it stands: `node.device`, or `node.board.device`. Devices under one prefix
are joined by links of their own; two neighbouring prefixes by the links between any of their devices.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from solvers.ir.errors import InvalidProblem
from solvers.ir.hardware import HOST, Hardware, Link
from solvers.workload.shape import ModelShape, Parallelism

EFFICIENCY_CLASS = "collective"
"""The operator class under which a device file states what part of the links' rate collectives reach."""


def accelerators(cluster: Hardware) -> list[str]:
    """The devices of a cluster in order, without the host."""
    return [device.name for device in cluster.devices if device.name != HOST]


def tensor_group(cluster: Hardware, tensor: int) -> tuple[str, ...]:
    """The devices that share every layer of a stage: of one node (Lynx §7.5), or whole nodes where one is too small.

    The first nodes stand for all, so a file need not list as many as a pipeline has stages. Raises `InvalidProblem`
    where `tensor` neither fits into a node nor fills nodes.
    """
    nodes = list(_nodes(cluster).values())
    size = min(map(len, nodes))
    if tensor <= size:
        return tuple(nodes[0][:tensor])
    if tensor % size or tensor > size * len(nodes):
        devices = size * len(nodes)
        remedy = (
            f"choose at most {size}, or a multiple of it up to {devices}" if devices > 1 else "choose 1, or a cluster"
        )
        has = f"{len(nodes)} node{'s' * (len(nodes) > 1)} of {size} device{'s' * (size > 1)}"
        raise InvalidProblem(f"tensor is {tensor}, but hardware {cluster.name!r} has {has}: {remedy}")
    return tuple(name for node in nodes[: tensor // size] for name in node)


def _nodes(cluster: Hardware) -> dict[str, list[str]]:
    """Devices by their node, which is the first component of a name."""
    nodes: dict[str, list[str]] = {}
    for name in accelerators(cluster):
        nodes.setdefault(name.partition(".")[0], []).append(name)
    return nodes


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


def p2p_us(shape: ModelShape, parallelism: Parallelism, cluster: Hardware) -> int:
    """Time to send a microbatch's activations from a stage to the next; 0 for a single stage.

    Every device sends its t-th part to its counterpart in the next node, all at once, so links of one bundle share
    their rate; then the receivers gather the parts (Narayanan et al. 2021, §4.1), unless each keeps its own part of
    the sequence. The first two nodes stand for all neighbours. Raises `InvalidProblem` where there is one node only.
    """
    if parallelism.pipeline == 1:
        return 0
    tensor = parallelism.tensor
    size = 2 * parallelism.microbatch * shape.sequence * shape.hidden
    exchange = _exchange_us(cluster, tensor, -(-size // tensor))
    gathered = 0.0 if parallelism.sequence_parallel else all_gather_us(cluster, tensor_group(cluster, tensor), size)
    return exchange + round(gathered)


def _exchange_us(cluster: Hardware, tensor: int, size: int) -> int:
    nodes = list(_nodes(cluster).values())
    if len(nodes) < 2:
        raise InvalidProblem(
            f"hardware {cluster.name!r} has a single node, but every stage has one of its own: choose a cluster"
        )
    links = [cluster.link(a, b) for a, b in zip(nodes[0][:tensor], nodes[1][:tensor], strict=True)]
    loads = Counter(_bundle(link) for link in links)
    return max(link.transfer_us(size * loads[_bundle(link)]) for link in links)


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
    rates = {_bundle(link): link.bytes_per_s for link in cluster.links if _joins(link, here, there)}
    if not rates:
        raise InvalidProblem(
            f"hardware {cluster.name!r} has no link from {sorted(here)} to {sorted(there)}: add one under links"
        )
    return sum(rates.values())


def _joins(link: Link, here: set[str], there: set[str]) -> bool:
    backwards = link.duplex != "simplex" and link.b in here and link.a in there
    return backwards or (link.a in here and link.b in there)


def _bundle(link: Link) -> tuple[str, ...]:
    return (link.shares,) if link.shares is not None else (link.a, link.b)


def _latency_us(cluster: Hardware, group: Sequence[str]) -> float:
    """The largest latency of the links inside the group: what a ring's step waits for."""
    members = set(group)
    return max(link.latency_us for link in cluster.links if _joins(link, members, members))
