"""Collectives: the ring is fitted from made-up times exactly, and from two processes' real ones."""

import json
import os
from pathlib import Path

import pytest
import torch

from runtime.profile import collectives
from runtime.profile.collectives import ROUNDS, Ring, Timing, fit_ring, joined, with_ring
from solvers.ir.errors import InvalidInput
from solvers.ir.hardware import HOST, Device, Hardware, Link
from solvers.timeline.collectives import all_gather_us, all_reduce_us, reduce_scatter_us
from tests.forked import run_world

SIZES = (1 << 12, 1 << 16, 1 << 20, 1 << 24)
NODE = Hardware(
    name="one",
    devices=(Device(name="cuda", memory_bytes=1 << 30),),
    links=(
        Link(a="cuda", b=HOST, bytes_per_s=50_000_000_000, duplex="simplex", shares="cuda and host"),
        Link(a=HOST, b="cuda", bytes_per_s=40_000_000_000, duplex="simplex", shares="cuda and host"),
    ),
    source="measured",
)


def made_up(ranks: int, ring: Ring) -> list[Timing]:
    return [Timing(name, size, ring.seconds(name, size, ranks)) for name in ROUNDS for size in SIZES]


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_ring_is_recovered_from_its_times(ranks: int) -> None:
    true = Ring(150_000_000_000, 7.5, 0.0)
    found = fit_ring(made_up(ranks, true), ranks)
    assert found.bytes_per_s == pytest.approx(true.bytes_per_s, rel=1e-6)
    assert found.latency_us == pytest.approx(7.5, rel=1e-4)
    assert found.error < 1e-4


def test_a_ring_of_two_by_hand() -> None:
    """One hop of 10 us, and half of 2 MB at 1 GB/s: 1,010 us; an all-reduce goes around twice."""
    ring = Ring(1_000_000_000, 10.0, 0.0)
    assert ring.seconds("all_gather", 2_000_000, 2) == pytest.approx(1010e-6)
    assert ring.seconds("all_reduce", 2_000_000, 2) == pytest.approx(2020e-6)


def test_a_latency_is_never_negative() -> None:
    """Small ones faster than the large ones' rate allows: the line through them would cross zero before."""
    times = [
        Timing("all_gather", 1 << 10, 1e-9),
        Timing("all_gather", 1 << 20, 1e-3),
        Timing("all_gather", 1 << 21, 3e-3),
    ]
    found = fit_ring(times, 2)
    assert found.latency_us == 0
    assert found.bytes_per_s > 0


def test_times_that_fall_with_the_size_are_no_rate() -> None:
    times = [Timing("all_gather", 1 << 10, 2e-3), Timing("all_gather", 1 << 24, 1e-6)]
    with pytest.raises(InvalidInput, match="tell no rate: measure again"):
        fit_ring([*times, *times], 2)


def test_the_measured_machine_gives_planners_the_measured_times() -> None:
    """Planners' own formulas find the ring's times again, from the links of the file."""
    ring = Ring(150_000_000_000, 7.5, 0.03)
    machine = with_ring(NODE, 4, ring)
    group = tuple(device.name for device in machine.devices)
    assert group == ("n0.d0", "n0.d1", "n0.d2", "n0.d3")
    for size in SIZES:
        for name, formula in (
            ("all_reduce", all_reduce_us),
            ("all_gather", all_gather_us),
            ("reduce_scatter", reduce_scatter_us),
        ):
            assert formula(machine, group, size) == pytest.approx(ring.seconds(name, size, 4) * 1e6, rel=1e-9)
    assert machine.link("n0.d3", HOST).bytes_per_s == 50_000_000_000
    assert machine.link(HOST, "n0.d3").shares == "n0.d3 and host"
    assert "among 4 processes of one machine, fitted by one ring within 3%" in machine.source


@pytest.mark.parametrize(
    ("kind", "environment", "sentence"),
    [
        ("cpu", {}, "needs two processes or more, and there is one: start it with torchrun"),
        ("sim", {"WORLD_SIZE": "2"}, "device sim has no links between devices"),
        ("cpu", {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}, "measures one machine, these are 4 processes on several"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    kind: str, environment: dict[str, str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InvalidInput, match=sentence), joined(kind):
        pass


def measure(folder: Path) -> None:
    """What each process runs."""
    collectives.TRIALS, collectives.CALLS = 1, 2
    torch.set_num_threads(1)
    with joined("cpu") as device:
        found = collectives.measure_collectives(device, (1 << 12, 1 << 22))
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps([tuple(one) for one in found]))


def test_two_processes_measure_what_they_exchange(tmp_path: Path) -> None:
    """Over gloo on the CPU: both are told the same times, the slower one's, of every collective and size."""
    run_world(measure, 2, tmp_path, tmp_path)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second
    times = {(name, size): seconds for name, size, seconds in first}
    assert set(times) == {(name, size) for name in ROUNDS for size in (1 << 12, 1 << 22)}
    assert all(seconds > 0 for seconds in times.values())
