"""Times of moves by hand: a host link, a ring in one host, rings across hosts."""

import re

import msgspec
import pytest

from experiments.hardware import read_hardware
from solvers.ir import Device, Hardware, InvalidInput, InvalidProblem, Link
from solvers.layout.moves import Moves

GB = 10**9


def machine(hosts: int, each: int, *, duplex: str = "full", inside: int = 10, between: int = 2) -> Hardware:
    """Devices fully joined inside a host; hosts joined through one port each, whatever device uses it."""
    names = [[f"n{host}.d{number}" for number in range(each)] for host in range(hosts)]
    flat = [name for group in names for name in group]
    links = [{"a": name, "b": "host", "bytes_per_s": 4 * GB, "latency_us": 1, "duplex": duplex} for name in flat]
    links += [
        {"a": a, "b": b, "bytes_per_s": inside * GB, "latency_us": 2}
        for group in names
        for number, a in enumerate(group)
        for b in group[number + 1 :]
    ]
    links += [
        {"a": a, "b": b, "bytes_per_s": between * GB, "latency_us": 5, "shares": f"port {x}-{y}"}
        for x in range(hosts)
        for y in range(x + 1, hosts)
        for a, b in zip(names[x], names[y], strict=True)
    ]
    devices = tuple(Device(name=name, memory_bytes=1) for name in flat)
    return Hardware(name="m", devices=devices, links=tuple(Link(**link) for link in links))  # type: ignore[arg-type]


def test_a_rank_alone_gathers_nothing() -> None:
    moves = Moves.of(machine(1, 1), 1)
    assert (moves.ranks, moves.ranks_per_host, moves.device) == (1, 1, "n0.d0")
    assert moves.in_us(4 * 10**6) == moves.out_us(4 * 10**6) == 1 + 1000
    assert moves.gather_us(10**9) == moves.reduce_us(10**9) == 0


def test_inside_a_host_a_ring_moves_all_but_a_rank_s_own_share() -> None:
    """Two devices, 10 GB/s: half of 40 MB takes 2000 us, and one step's latency."""
    assert Moves.of(machine(1, 2), 2).gather_us(40 * 10**6) == 2000 + 2
    assert Moves.of(machine(1, 3), 2).gather_us(40 * 10**6) == 2000 + 2


def test_across_hosts_the_port_is_shared_by_a_host_s_ranks() -> None:
    """Two hosts of two: half of 40 MB crosses at 2 GB/s (10,000 us, one step), then half is spread inside (2000 us)."""
    moves = Moves.of(machine(2, 2), 4, hosts=2)
    assert moves.groups == (("n0.d0", "n0.d1"), ("n1.d0", "n1.d1")) and moves.ranks_per_host == 2
    assert moves.gather_us(40 * 10**6) == moves.reduce_us(40 * 10**6) == 10_000 + 5 + 2000 + 2


def test_a_ring_of_hosts_takes_a_step_for_every_other_host() -> None:
    """Four hosts of one rank: three steps of 10 MB at 2 GB/s each."""
    assert Moves.of(machine(4, 1), 4, hosts=4).gather_us(40 * 10**6) == 3 * (5000 + 5)


@pytest.mark.parametrize("size", [1, 7, 10**6 + 1, 10**9])
def test_no_time_is_rounded_down_and_more_bytes_never_take_less(size: int) -> None:
    for ranks, hosts in ((2, 1), (4, 2), (8, 2), (16, 4)):
        moves = Moves.of(read_hardware("protrain-a100-16"), ranks, hosts)
        assert moves.gather_us(2 * size) >= moves.gather_us(size) > 0


def test_the_network_of_section_5_5() -> None:
    """Three quarters of a GB at 75 % of 12.5 GB/s between nodes, then at 75 % of 300 GB/s inside: 80 + 3.3 ms."""
    moves = Moves.of(read_hardware("protrain-a100-16"), 16, 4)
    assert moves.gather_us(GB) == pytest.approx(0.75 / (0.75 * 12.5) * 1e6 + 0.75 / (0.75 * 300) * 1e6, rel=1e-3)


def test_what_a_machine_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidInput, match="5 ranks on 1 hosts need 5 devices a host, but hardware 'm' has 0 such"):
        Moves.of(machine(2, 4), 5)
    with pytest.raises(InvalidInput, match="6 ranks on 3 hosts need 2 devices a host, but hardware 'm' has 2 such"):
        Moves.of(machine(2, 4), 6, hosts=3)
    for ranks, hosts in ((3, 2), (0, 1), (1, 0)):
        with pytest.raises(InvalidInput, match=f"ranks is {ranks} on {hosts} hosts"):
            Moves.of(machine(2, 4), ranks, hosts)
    with pytest.raises(InvalidProblem, match="half duplex"):
        Moves.of(machine(1, 1, duplex="half"), 1)


@pytest.mark.parametrize(
    ("place", "changes", "says"),
    [
        ("devices", {"memory_bytes": 2}, "gives 'n1.d1' memory_bytes 2, but 'n0.d0' 1"),
        ("devices", {"flops_per_s": {"float16": 7}}, "gives 'n1.d1' flops_per_s {'float16': 7}, but 'n0.d0' {}"),
        ("links", {"bytes_per_s": 9}, f"gives 'n1.d1' bytes_per_s from the host 9, but 'n0.d0' {4 * GB}"),
        ("links", {"latency_us": 9}, "gives 'n1.d1' latency_us from the host 9.0, but 'n0.d0' 1.0"),
    ],
)
def test_ranks_that_are_not_alike_are_refused_and_unused_devices_may_differ(
    place: str, changes: dict[str, object], says: str
) -> None:
    """The fourth device, or its host link, which is the fourth link."""
    raw = msgspec.to_builtins(machine(2, 2))
    raw[place][3].update(changes)
    unlike = msgspec.convert(raw, Hardware)
    with pytest.raises(InvalidInput, match=re.escape(says)):
        Moves.of(unlike, 4, hosts=2)
    assert Moves.of(unlike, 2).ranks == 2


def test_the_slowest_host_s_ring_counts() -> None:
    raw = msgspec.to_builtins(machine(2, 2))
    inside = next(link for link in raw["links"] if (link["a"], link["b"]) == ("n1.d0", "n1.d1"))
    inside["bytes_per_s"] //= 2
    slow = Moves.of(msgspec.convert(raw, Hardware), 4, hosts=2)
    assert slow.gather_us(40 * 10**6) == slow.reduce_us(40 * 10**6) == 10_000 + 5 + 4000 + 2
