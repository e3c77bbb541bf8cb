"""One calendar of the links: operations of groups take the first gap, copies go one after the other among them."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime.device import SimDevice
from solvers.ir.hardware import Link
from solvers.timeline.collectives import Lane, collective_lanes, message_lanes
from tests.csrc.sim.devices.conftest import LAUNCH, PEER_LATENCY, linked

Machine = Callable[..., SimDevice]
FAST = {"bytes_per_s": 1_000_000_000, "latency_us": 3.0}
RING = linked("abc", tuple(Link(a=a, b=b, duplex="half", **FAST) for a, b in ("ab", "bc", "ac")))  # type: ignore[arg-type]
LANES = [next(iter(message_lanes(RING, *pair))) for pair in ("ab", "bc", "ac")]
LONG = 10_000


def test_who_finds_its_link_in_use_waits_and_may_fill_a_gap(machine: Machine) -> None:
    sim = machine(RING, devices=3)
    one, other, _ = LANES
    assert sim.reserve_links([one], 0, 100) == 0
    assert sim.reserve_links([one], 300, 100) == 300
    assert sim.reserve_links([one, other], 50, 150) == 100  # the gap is 200 long
    assert sim.reserve_links([other], 0, 100) == 0
    assert sim.reserve_links([one], 240, 100) == 400
    assert sim.reserve_links([one], 250, 0) == 250  # what takes no time needs no link
    assert sim.reserve_links([one], 0, 100) == 500
    sim.reset()
    assert sim.reserve_links([one], 0, 100) == 0


wishes = st.tuples(st.sets(st.integers(0, 2), min_size=1), st.integers(0, 30), st.integers(1, 9))


@given(st.lists(wishes, max_size=20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_no_link_carries_two_at_once_and_none_waits_for_nothing(
    machine: Machine, wanted: list[tuple[set[int], int, int]]
) -> None:
    """Against a timetable of single nanoseconds."""
    sim, used = machine(RING, devices=3), {lane: set[int]() for lane in range(3)}
    for lanes, earliest, duration in wanted:
        start = sim.reserve_links([LANES[lane] for lane in lanes], earliest, duration)
        free = (
            at for at in range(earliest, LONG) if all(used[lane].isdisjoint(range(at, at + duration)) for lane in lanes)
        )
        assert start == next(free)
        for lane in lanes:
            used[lane] |= set(range(start, start + duration))


def copied(sim: SimDevice, sizes: list[int]) -> list[tuple[int, int]]:
    """When copies from the first device to the second begin and end, issued one after the other from now on."""
    sources = [torch.ones(size, dtype=torch.uint8, device="sim:0") for size in sizes]
    targets = [torch.ones(size, dtype=torch.uint8, device="sim:1") for size in sizes]
    before = len(sim.trace())
    sim.set_tracing(True)
    for source, target in zip(sources, targets, strict=True):
        target.copy_(source)
    return [(one.start_ns, one.end_ns) for one in sim.trace()[before:] if one.kind == "peer"]


def test_a_copy_takes_the_first_gap_between_operations(machine: Machine) -> None:
    """A copy of n bytes takes 3 µs and n ns; the second, which would fit before the first, stays behind it."""
    sim = machine(RING, devices=3)
    torch.ones(1, device="sim:0"), torch.ones(1, device="sim:1")
    sim.reset()
    sim.synchronize()
    lane = message_lanes(RING, "a", "b")
    now = sim.host_ns()
    sim.reserve_links(lane, now + 20_000, 4_000)
    sim.reserve_links(lane, now + 30_000, 50_000)
    begins = copied(sim, [5_000, 1_000])
    assert [end - start for start, end in begins] == [PEER_LATENCY + 5_000, PEER_LATENCY + 1_000]
    first, second = (start for start, _ in begins)
    assert first >= LAUNCH and second >= begins[0][1]
    busy = sorted([*begins, (now + 20_000, now + 24_000), (now + 30_000, now + 80_000)])
    assert all(end <= start for (_, end), (start, _) in pairwise(busy))
    assert sim.reserve_links(lane, 0, 1 << 20) == max(end for _, end in busy)


@given(
    st.lists(
        st.one_of(st.tuples(st.just("copy"), st.integers(1, 9_000)), st.tuples(st.integers(0, 60), st.integers(1, 20))),
        max_size=12,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
def test_copies_and_operations_never_meet(machine: Machine, wanted: list[tuple[object, int]]) -> None:
    """In any order: against a timetable of nanoseconds, copies not before the copy before them."""
    sim = machine(RING, devices=3)
    one, other = (torch.ones(9_000, dtype=torch.uint8, device=f"sim:{index}") for index in range(2))
    sim.reset()
    sim.set_tracing(True)
    lane, used, last = message_lanes(RING, "a", "b"), list[tuple[int, int]](), 0
    for what, size in wanted:
        if what == "copy":
            ready = max(sim.stream_ns(torch.accelerator.current_stream(torch.device("sim:0"))), sim.host_ns() + LAUNCH)
            earliest, duration = max(last, ready), PEER_LATENCY + size
            other[:size].copy_(one[:size])
            record = next(record for record in reversed(sim.trace()) if record.kind == "peer")
            start, last = record.start_ns, record.end_ns
        else:
            assert isinstance(what, int)
            earliest, duration = what * 1_000, size * 1_000
            start = sim.reserve_links(lane, earliest, duration)
        ends = [earliest, *sorted(end for _, end in used)]
        fits = (at for at in ends if at >= earliest and all(e <= at or b >= at + duration for b, e in used))
        assert start == min(fits)
        used.append((start, start + duration))


def test_lanes_of_hosts_are_no_groups(machine: Machine) -> None:
    """Groups want links between devices only; there alone past transfers are kept."""
    sim = machine(RING, devices=3)
    assert len(collective_lanes(RING, ["a", "b", "c"])) == 3
    with pytest.raises(RuntimeError, match="joins no devices, so that no group can use it"):
        sim._native.reserve_links([0], 0, 10)  # the first device's way to the host
    assert Lane(("a", "b"), "") in LANES
