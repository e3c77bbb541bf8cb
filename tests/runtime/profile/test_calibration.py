"""Calibration recovers what the simulated device was told to be, and says of a CPU what it can."""

import re

import msgspec
import pytest
import torch

from runtime.device import SimDevice, use_sim
from runtime.device.setup import plain_numbers
from runtime.profile import links
from runtime.profile.calibration import _float32, calibrate
from runtime.profile.links import measure_both_ways, measure_links
from solvers.ir.codec import document_to_raw, read_document, write_json
from solvers.ir.hardware import Device, Hardware, Link

MODEST = Hardware(
    name="modest",
    devices=(
        Device(
            name="0",
            memory_bytes=1 << 30,
            flops_per_s={"float32": 2_000_000_000_000, "bfloat16": 3_000_000_000_000},
            bytes_per_s=150_000_000_000,
            launch_us=3.0,
            efficiency={
                "matmul": 0.7,
                "attention": 0.5,
                "convolution": 0.6,
                "elementwise": 0.9,
                "reduction": 0.75,
                "copy": 0.85,
            },
        ),
    ),
    links=(Link(a="0", b="host", bytes_per_s=8_000_000_000, latency_us=9.0),),
)


def with_links(*links: Link) -> Hardware:
    return msgspec.structs.replace(MODEST, links=links)


@pytest.mark.usefixtures("sim")
def test_the_simulated_device_is_recovered_within_two_percent() -> None:
    use_sim(MODEST, shapes_only=True)  # kernels take as long whatever the numbers
    measured, true = calibrate("sim"), MODEST.device()
    device = measured.device()
    for dtype, rate in true.flops_per_s.items():
        assert device.flops_per_s[dtype] * device.reached("matmul") == pytest.approx(rate * 0.7, rel=0.02)
    for op_class in ("matmul", "elementwise", "reduction", "copy"):
        expected = true.bytes_per_s * true.reached(op_class)
        assert device.bytes_per_s * device.reached(op_class) == pytest.approx(expected, rel=0.02)
    for op_class in ("attention", "convolution"):
        expected = true.flops_per_s["float32"] * true.reached(op_class)
        assert device.flops_per_s["float32"] * device.reached(op_class) == pytest.approx(expected, rel=0.02)
    assert device.launch_us == pytest.approx(3.0, rel=0.02)
    assert device.memory_bytes == true.memory_bytes
    (link,) = measured.links
    assert link.bytes_per_s == pytest.approx(8_000_000_000, rel=0.02)
    assert link.latency_us == pytest.approx(9.0, rel=0.02)
    assert link.duplex == "full"
    assert "sim:0" in measured.source
    assert re.search(r"1\.0\d times as long with copies the other way at once", measured.source)
    assert "of the host an event takes 0.00 µs to record" in measured.source  # sim's events cost nothing


@pytest.mark.usefixtures("sim")
def test_a_link_that_both_directions_share_is_half_duplex(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.profile.links.LARGE_BYTES", 4 << 20)
    device = use_sim(with_links(Link(a="0", b="host", bytes_per_s=8_000_000_000, duplex="half"))).device
    (link,), slowdown = measure_both_ways(device, "sim")
    assert link.duplex == "half"
    assert slowdown == pytest.approx(2, rel=0.02)


@pytest.mark.usefixtures("sim")
def test_copies_both_ways_do_not_meet_on_a_full_duplex_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.profile.links.LARGE_BYTES", 4 << 20)
    (link,), slowdown = measure_both_ways(use_sim(MODEST).device, "sim")
    assert (link.duplex, link.shares) == ("full", None)
    assert 1 <= slowdown < 1.02


@pytest.mark.usefixtures("sim")
def test_unequal_directions_that_slow_each_other_down_share_a_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """No hardware file of sim has such a link, so its time both ways is made up: 1.9 times the slower one's."""
    slow = Link(a="0", b="host", bytes_per_s=5_000_000_000, duplex="simplex")
    fast = Link(a="host", b="0", bytes_per_s=8_000_000_000, duplex="simplex")
    device = use_sim(with_links(slow, fast)).device
    monkeypatch.setattr(links, "_both_s", lambda device: 1.9 * links.LARGE_BYTES / 5_000_000_000)
    both, slowdown = measure_both_ways(device, "0")
    assert slowdown == pytest.approx(1.9, rel=0.01)
    assert [link.shares for link in both] == ["0 and host", "0 and host"]


@pytest.mark.usefixtures("sim")
def test_unequal_directions_are_two_links() -> None:
    slow = Link(a="0", b="host", bytes_per_s=5_000_000_000, latency_us=7.0, duplex="simplex")
    fast = Link(a="host", b="0", bytes_per_s=8_000_000_000, latency_us=9.0, duplex="simplex")
    device = use_sim(with_links(slow, fast)).device
    measured = Hardware(name="sim", devices=MODEST.devices, links=measure_links(device, "0"))
    for told in (slow, fast):
        found = measured.link(told.a, told.b)
        assert found.bytes_per_s == pytest.approx(told.bytes_per_s, rel=0.02)
        assert found.latency_us == pytest.approx(told.latency_us, rel=0.02)


def test_a_cpu_has_rates_but_no_link(tmp_path_factory: pytest.TempPathFactory) -> None:
    measured = calibrate("cpu", name="this-machine")
    device = measured.device()
    assert measured.links == ()
    assert "no links: a CPU's memory is the host's" in measured.source
    assert device.flops_per_s["float32"] > 1_000_000_000
    assert device.bytes_per_s > 100_000_000
    assert device.memory_bytes > 1 << 28
    path = tmp_path_factory.mktemp("hardware") / "h.json"
    write_json(path, document_to_raw(measured))
    assert read_document(path, Hardware) == measured


def test_what_was_measured_configures_the_simulator(sim: SimDevice) -> None:
    use_sim(capacity_bytes=sim.capacity_bytes, shapes_only=True)
    again = use_sim(calibrate("sim"))
    assert again.capacity_bytes == sim.capacity_bytes


def test_tensorfloat_rates_are_kept_from_the_simulator() -> None:
    """A file measured on a GPU has them; sim's kernels are of torch's dtypes only."""
    device = msgspec.structs.replace(MODEST.device(), flops_per_s={"float32": 10**12, "tf32": 8 * 10**12})
    numbers = plain_numbers(msgspec.structs.replace(MODEST, devices=(device,)), 0.0, 0)
    assert numbers["flops_per_s"] == {"float32": 10**12}


def test_how_exact_products_are_is_as_before() -> None:
    def now() -> tuple[str, bool]:
        return torch.get_float32_matmul_precision(), bool(torch.backends.cudnn.allow_tf32)

    before = now()
    with _float32("high"):
        assert now() == ("high", True)
        with _float32("highest"):
            assert now() == ("highest", False)
        assert now() == ("high", True)
    assert now() == before
