"""Collectives by hand: rings, meshes, boards, nodes, shared ports."""

import msgspec
import pytest

from experiments.hardware import hardware_names, read_hardware
from experiments.shapes import read_shape
from solvers.ir import Device, Hardware, InvalidProblem, Link
from solvers.ir.hardware import HOST
from solvers.workload import Parallelism, all_gather_us, all_reduce_us, bus_bytes_per_s, p2p_us, tensor_group

MB = 10**6


def cluster(names: list[str], links: list[Link], efficiency: float = 1.0) -> Hardware:
    devices = [Device(name=name, memory_bytes=1, efficiency={"collective": efficiency}) for name in names]
    return Hardware(name="c", devices=tuple(devices), links=tuple(links))


def link(a: str, b: str, rate: int, latency: float = 0.0, shares: str | None = None) -> Link:
    return Link(a=a, b=b, bytes_per_s=rate * MB, latency_us=latency, shares=shares)


PAIR = cluster(["d0", "d1"], [link("d0", "d1", 100, 7.0)], efficiency=0.5)


def test_a_pair_moves_half_of_the_bytes_twice() -> None:
    """2·(1/2)·bytes over 50 MB/s of the 100, and two steps' latency."""
    assert tensor_group(PAIR, 1) == ("d0",)
    assert all_reduce_us(PAIR, ("d0",), MB) == 0
    assert bus_bytes_per_s(PAIR, ("d0", "d1")) == 50 * MB
    assert all_reduce_us(PAIR, ("d0", "d1"), MB) == pytest.approx(1e6 / 50 + 2 * 7)
    assert all_gather_us(PAIR, ("d0", "d1"), MB) == pytest.approx(0.5e6 / 50 + 7)


def test_a_mesh_uses_all_links_of_a_device_and_a_bundle_counts_once() -> None:
    names = ["d0", "d1", "d2", "d3"]
    pairs = [(a, b) for a in names for b in names if a < b]
    meshed = cluster([f"n.{name}" for name in names], [link(f"n.{a}", f"n.{b}", 10) for a, b in pairs])
    assert bus_bytes_per_s(meshed, tensor_group(meshed, 4)) == 30 * MB
    assert bus_bytes_per_s(meshed, tensor_group(meshed, 2)) == 10 * MB
    shared = cluster([f"n.{name}" for name in names], [link(f"n.{a}", f"n.{b}", 10, 0, "root") for a, b in pairs])
    assert bus_bytes_per_s(shared, tensor_group(shared, 4)) == 10 * MB


def test_a_ring_over_boards_and_nodes_is_as_slow_as_its_slowest_crossing() -> None:
    names = [f"n{n}.b{b}.d{d}" for n in range(2) for b in range(2) for d in range(2)]
    links = [link(f"n{n}.b{b}.d0", f"n{n}.b{b}.d1", 50) for n in range(2) for b in range(2)]
    links += [link(f"n{n}.b0.d{d}", f"n{n}.b1.d{d}", 20) for n in range(2) for d in range(2)]
    links += [link(f"n0.b{b}.d{d}", f"n1.b{b}.d{d}", 30, 0, "port") for b in range(2) for d in range(2)]
    machine = cluster(names, links)
    assert bus_bytes_per_s(machine, tensor_group(machine, 2)) == 50 * MB
    assert bus_bytes_per_s(machine, tensor_group(machine, 4)) == 40 * MB  # two links of 20 between the boards
    assert bus_bytes_per_s(machine, tensor_group(machine, 8)) == 30 * MB  # one port between the nodes
    with pytest.raises(InvalidProblem, match="tensor is 6, but hardware 'c' has 2 nodes of 4 devices"):
        tensor_group(machine, 6)
    with pytest.raises(InvalidProblem, match=r"has 1 node of 4 devices: choose at most 4$"):
        tensor_group(cluster(names[:4], links[:1]), 6)
    with pytest.raises(InvalidProblem, match="hardware 'c' has 1 node of 1 device: choose 1, or a cluster"):
        tensor_group(cluster(names[:1], []), 2)
    with pytest.raises(InvalidProblem, match="no link from"):
        bus_bytes_per_s(cluster(names, links[:1]), tensor_group(machine, 4))


def test_stages_share_the_port_between_nodes_and_gather_what_they_sent_in_parts() -> None:
    """Two devices send half of 2sbh each through one port of 1 MB/s; then each gathers the other's half at 10 MB/s."""
    names = ["n0.d0", "n0.d1", "n1.d0", "n1.d1"]
    links = [link("n0.d0", "n0.d1", 10), link("n1.d0", "n1.d1", 10)]
    links += [link(f"n0.d{d}", f"n1.d{d}", 1, 5.0, "port") for d in range(2)]
    machine = cluster(names, links)
    shape = read_shape("gpt-300m")
    size = 2 * 3 * shape.sequence * shape.hidden
    cut = Parallelism(tensor=2, pipeline=4, microbatch=3)
    assert p2p_us(shape, cut, machine) == 5 + size + round(size / 2 / 10)
    assert p2p_us(shape, msgspec.structs.replace(cut, sequence_parallel=True), machine) == 5 + size
    assert p2p_us(shape, msgspec.structs.replace(cut, pipeline=1), machine) == 0
    with pytest.raises(InvalidProblem, match="'protrain-3090' has a single node, but every stage has one of its own"):
        p2p_us(shape, cut, read_hardware("protrain-3090"))


@pytest.mark.parametrize(
    ("name", "tensor", "gigabytes"),
    [
        ("lynx-nvlink", 2, 75.0),
        ("lynx-nvlink", 4, 225.0),
        ("lynx-nvlink", 8, 9.375),
        ("lynx-nvlink-8", 8, 225.0),
        ("lynx-pcie", 2, 23.625),
        ("lynx-pcie", 4, 9.375),
        ("lynx-ascend", 4, 67.5),
        ("lynx-ascend", 8, 67.5),
        ("protrain-3090", 4, 11.85),
        ("smartswap-910b", 8, 147.0),
    ],
)
def test_bus_bandwidths_of_the_papers_clusters(name: str, tensor: int, gigabytes: float) -> None:
    machine = read_hardware(name)
    assert bus_bytes_per_s(machine, tensor_group(machine, tensor)) == pytest.approx(gigabytes * 1e9)


@pytest.mark.parametrize("name", [name for name in hardware_names() if not name.startswith("sim-")])
def test_shipped_machines_flag_what_is_assumed_and_have_devices_alike(name: str) -> None:
    machine = read_hardware(name)
    assert "assumed" in machine.source
    devices = [device for device in machine.devices if device.name != HOST]
    assert len({(d.memory_bytes, d.bytes_per_s, d.launch_us, d.flops_per_s["float16"]) for d in devices}) == 1
    assert all("collective" in device.efficiency for device in devices)
