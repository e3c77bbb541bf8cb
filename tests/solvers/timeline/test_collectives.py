"""Rings and trees to the nanosecond, and operations that want the same links."""

import pytest

from solvers.ir import Device, Hardware, InvalidProblem, Link
from solvers.timeline.collectives import (
    all_reduce_us,
    collective_lanes,
    collective_ns,
    message_lanes,
    message_ns,
)

GB = 10**9
NAMES = [f"n{node}.d{device}" for node in range(2) for device in range(2)]
LINKS = [
    Link(a="n0.d0", b="n0.d1", bytes_per_s=100 * GB, latency_us=5),
    Link(a="n1.d0", b="n1.d1", bytes_per_s=100 * GB, latency_us=5),
    Link(a="n0.d0", b="n1.d0", bytes_per_s=10 * GB, latency_us=20, shares="network"),
    Link(a="n0.d1", b="n1.d1", bytes_per_s=10 * GB, latency_us=20, shares="network"),
]
CLUSTER = Hardware(name="c", devices=tuple(Device(name=name, memory_bytes=1) for name in NAMES), links=tuple(LINKS))
PAIR, ALL = NAMES[:2], NAMES


def test_a_ring_passes_each_part_around() -> None:
    """Of two: each passes half, 100 MB/2 over 100 GB/s, and 5 µs, once or twice."""
    size = 100_000_000
    assert collective_ns(CLUSTER, "reduce_scatter", PAIR, size) == 500_000 + 5_000
    assert {collective_ns(CLUSTER, kind, PAIR, size) for kind in ("all_gather", "all_to_all")} == {505_000}
    assert collective_ns(CLUSTER, "all_reduce", PAIR, size) == 2 * 505_000
    assert collective_ns(CLUSTER, "broadcast", ALL, size) == 10_000_000 + 3 * 20_000  # over the network
    assert collective_ns(CLUSTER, "all_reduce", ["n0.d0"], size) == 0
    assert all_reduce_us(CLUSTER, PAIR, size) * 1e3 == pytest.approx(collective_ns(CLUSTER, "all_reduce", PAIR, size))


def test_a_tree_is_better_for_little_and_fastest_takes_the_better() -> None:
    small, large = 100, 10**9
    ring, tree, best = (
        [collective_ns(CLUSTER, "all_reduce", ALL, size, how) for size in (small, large)]
        for how in ("ring", "tree", "fastest")
    )
    assert tree[0] == 2 * (10 + 2 * 20_000) < ring[0] == 2 * 3 * (3 + 20_000) - 3  # 2.5 ns a part, rounded up once
    assert best == [tree[0], ring[1]]
    assert collective_ns(CLUSTER, "barrier", ALL, 0) == 2 * 3 * 20_000


def test_a_message_crosses_its_link() -> None:
    assert message_ns(CLUSTER, "n0.d1", "n1.d1", 1_000_000) == 20_000 + 100_000
    with pytest.raises(InvalidProblem, match=r"no link from 'n0\.d0' to 'n1\.d1'"):
        message_ns(CLUSTER, "n0.d0", "n1.d1", 1)


def test_directions_are_apart_unless_the_link_is_half_duplex() -> None:
    there, back = message_lanes(CLUSTER, "n0.d0", "n0.d1"), message_lanes(CLUSTER, "n0.d1", "n0.d0")
    assert there.isdisjoint(back)
    assert there | back == collective_lanes(CLUSTER, PAIR)
    shared = [message_lanes(CLUSTER, f"n0.d{device}", f"n1.d{device}") for device in range(2)]
    assert shared[0] == shared[1]
    one = Link(a="n0.d0", b="n0.d1", bytes_per_s=1, duplex="half")
    half = Hardware(name="h", devices=CLUSTER.devices, links=(one,))
    assert message_lanes(half, "n0.d0", "n0.d1") == message_lanes(half, "n0.d1", "n0.d0")


def test_a_bundle_within_a_node_leads_as_its_links_are_written() -> None:
    """Two nodes tell the directions of a bundle; within one, and where names have no nodes, a and b do."""
    pcie = tuple(Link(a="n0.d0", b=f"n0.d{i}", bytes_per_s=GB, shares="pcie") for i in (1, 2))
    names = ("n0.d0", "n0.d1", "n0.d2")
    node = Hardware(name="n", devices=tuple(Device(name=name, memory_bytes=1) for name in names), links=pcie)
    there = [message_lanes(node, "n0.d0", f"n0.d{i}") for i in (1, 2)]
    back = [message_lanes(node, f"n0.d{i}", "n0.d0") for i in (1, 2)]
    assert there[0] == there[1] != back[0] == back[1]
