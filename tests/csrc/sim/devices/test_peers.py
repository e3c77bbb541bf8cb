"""Copies between devices: order, bytes, and time to the nanosecond, with shared links one after the other."""

from collections.abc import Callable

import pytest
import torch

from runtime.device import SimDevice
from solvers.ir.hardware import Hardware, Link
from tests.csrc.sim.conftest import ROUND
from tests.csrc.sim.devices.conftest import HOST_LATENCY, LAUNCH, PEER_LATENCY, linked

Machine = Callable[..., SimDevice]
MIB = 1 << 20
FAST = {"bytes_per_s": 4_000_000_000, "latency_us": 3.0}
PEER = PEER_LATENCY + MIB // 4
THROUGH_HOST = 2 * (HOST_LATENCY + MIB)


@pytest.mark.parametrize(
    ("hardware", "duration"),
    [(ROUND, THROUGH_HOST), (linked("ab", ()), THROUGH_HOST), (linked("ab", (Link(a="a", b="b", **FAST),)), PEER)],  # type: ignore[arg-type]
    ids=["one for all", "no link", "link"],
)
def test_a_copy_takes_the_link_between_them_or_both_to_the_host(
    machine: Machine, hardware: Hardware, duration: int
) -> None:
    sim = machine(hardware)
    sim.set_tracing(True)
    source = torch.arange(MIB, dtype=torch.uint8, device="sim:0")
    sim.reset()
    target = source.to("sim:1", non_blocking=True)
    (record,) = sim.trace()
    assert (record.kind, record.stream, record.bytes) == ("peer", 0, MIB)
    assert (record.start_ns, record.end_ns) == (LAUNCH, LAUNCH + duration)
    assert sim.now_ns() == sim.at(1).now_ns() == LAUNCH + duration
    assert sim.host_ns() == LAUNCH
    assert sim.at(0).counters().bytes_to_peers == MIB
    assert torch.equal(target.cpu(), source.cpu())


def test_both_streams_are_ordered_with_the_copy(machine: Machine) -> None:
    """As on CUDA, the source's stream waits for what fills the target, and the target's for the copy."""
    sim = machine(linked("ab", (Link(a="a", b="b", **FAST),)))  # type: ignore[arg-type]
    source, target = torch.ones(MIB, dtype=torch.uint8, device="sim:0"), torch.empty(MIB, device="sim:1")
    target.fill_(2.0)
    filled = sim.at(1).now_ns()
    target.copy_(source)
    assert sim.now_ns() == max(filled, sim.host_ns()) + PEER
    target.add_(1)
    source.zero_()
    assert target.eq(2).all() and sim.races() == []


def test_a_copy_converts_and_keeps_gaps(machine: Machine) -> None:
    machine()
    source = torch.arange(12.0, device="sim:0").view(3, 4)
    target = torch.zeros(4, 6, dtype=torch.int32, device="sim:1")
    target[:, ::2].copy_(source.t())
    assert target[:, ::2].t().tolist() == source.tolist()
    assert target[:, 1::2].eq(0).all()
    assert source.to("sim:1", torch.float64).sum().item() == 66


def test_a_stream_that_does_not_wait_for_a_peer_copy_races(machine: Machine) -> None:
    sim = machine(races="record")
    source, target = torch.ones(4, device="sim:0"), torch.zeros(4, device="sim:1")
    side = torch.Stream(device="sim:1")
    target.copy_(source)
    with side:
        target.add_(1)
    (race,) = sim.races()
    assert (race.first.op, race.first.device, race.second.op, race.second.device) == ("copy to peer", 0, "add_", 1)
    waiter = f"stream {side.stream_id % 1000} of sim:1"
    assert race.sentence.endswith(f"let {waiter} wait for an event recorded on stream 0 of sim:0 after the first")


def _ends(sim: SimDevice, pairs: list[tuple[int, int]]) -> list[int]:
    sources = [torch.ones(MIB, dtype=torch.uint8, device=f"sim:{a}") for a, _ in pairs]
    targets = [torch.ones(MIB, dtype=torch.uint8, device=f"sim:{b}") for _, b in pairs]
    sim.reset()
    sim.set_tracing(True)
    for source, target in zip(sources, targets, strict=True):
        target.copy_(source)
    return sorted(record.end_ns for record in sim.trace())


@pytest.mark.parametrize("shares", [None, "network"])
def test_links_that_share_a_rate_carry_one_copy_at_a_time(machine: Machine, shares: str | None) -> None:
    """Four devices, two links side by side: a copy on each, at once or one after the other."""
    links = tuple(Link(a=a, b=b, shares=shares, **FAST) for a, b in ("ac", "bd"))  # type: ignore[arg-type]
    sim = machine(linked("abcd", links), devices=4)
    second = LAUNCH + 2 * PEER if shares else 2 * LAUNCH + PEER
    assert _ends(sim, [(0, 2), (1, 3)]) == [LAUNCH + PEER, second]
    assert _ends(sim, [(0, 2), (3, 1)]) == [LAUNCH + PEER, 2 * LAUNCH + PEER]  # full duplex: each way its own


@pytest.mark.parametrize("duplex", ["half", "full"])
def test_a_half_duplex_link_carries_one_direction_at_a_time(machine: Machine, duplex: str) -> None:
    """Side streams on the one device, so that the copies themselves need not wait for each other."""
    sim = machine(linked("ab", (Link(a="a", b="b", duplex=duplex, **FAST),)))  # type: ignore[arg-type]
    one, other = (torch.ones(MIB, dtype=torch.uint8, device=f"sim:{index}") for index in range(2))
    there, back = (torch.ones(MIB, dtype=torch.uint8, device=f"sim:{1 - index}") for index in range(2))
    sides = [torch.Stream(device=f"sim:{index}") for index in range(2)]
    sim.synchronize()
    sim.reset()
    there.copy_(one)
    for side in sides:
        torch.accelerator.set_stream(side)
    back.copy_(other)
    for index in range(2):
        torch.accelerator.set_stream(torch.Stream(stream_id=1000 * index, device_type=20, device_index=index))
    assert sim.stream_ns(sides[1]) == (LAUNCH + 2 * PEER if duplex == "half" else 2 * LAUNCH + PEER)
    sim.synchronize()
