"""What people write as a budget."""

import msgspec
import pytest
import torch

from runtime.device import DEFAULT_HARDWARE, use_sim
from runtime.profile.machine import by_direction, hardware_of, measured_hardware
from runtime.swap.budget import budget_of, planned_bytes
from solvers.ir.errors import InvalidInput
from solvers.ir.hardware import HOST, Link

MEMORY_BYTES = 1000 << 20


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (None, MEMORY_BYTES),
        (123, 123),
        ("123", 123),
        ("100MiB", 100 << 20),
        ("0.5GB", 500_000_000),
        ("80%", 800 << 20),
        ("12.5 %", 125 << 20),
    ],
)
def test_amounts_shares_and_nothing_at_all(budget: int | str | None, expected: int) -> None:
    assert budget_of(budget, MEMORY_BYTES) == expected


@pytest.mark.parametrize(
    "budget", [0, -1, 10**400, -(10**400), float("nan"), float("inf"), MEMORY_BYTES + 1, "2GiB", "120%", "0%", "much"]
)
def test_a_budget_that_means_nothing_is_refused(budget: float | str) -> None:
    with pytest.raises(InvalidInput, match="budget"):
        budget_of(budget, MEMORY_BYTES)  # type: ignore[arg-type]


def test_headroom_is_left_free() -> None:
    assert planned_bytes(1000, 0.0) == 1000
    assert planned_bytes(1000, 0.1) == 900
    for headroom in (-0.1, 1.0):
        with pytest.raises(InvalidInput, match="headroom"):
            planned_bytes(1000, headroom)


def test_the_link_is_measured_as_it_is(device: torch.device) -> None:
    link = Link(a="0", b=HOST, bytes_per_s=8_000_000_000, latency_us=20.0)
    use_sim(msgspec.structs.replace(DEFAULT_HARDWARE, links=(link,)))
    assert hardware_of(device).links == (link,)
    measured = measured_hardware(device)
    (found,) = measured.links
    assert found.bytes_per_s == pytest.approx(link.bytes_per_s, rel=1e-3)
    assert found.latency_us == pytest.approx(link.latency_us, rel=0.3)  # the copy's launch included
    assert measured.device().memory_bytes == DEFAULT_HARDWARE.device().memory_bytes


def test_a_shared_link_is_planned_for_as_two() -> None:
    shared = Link(a="0", b=HOST, bytes_per_s=1000, latency_us=2.0, duplex="half")
    other = Link(a="0", b=HOST, bytes_per_s=1000, latency_us=2.0)
    assert by_direction(msgspec.structs.replace(DEFAULT_HARDWARE, links=(other,))).links == (other,)
    assert by_direction(msgspec.structs.replace(DEFAULT_HARDWARE, links=(shared,))).links == (
        Link(a="0", b=HOST, bytes_per_s=1000, latency_us=2.0, duplex="simplex"),
        Link(a=HOST, b="0", bytes_per_s=1000, latency_us=2.0, duplex="simplex"),
    )
