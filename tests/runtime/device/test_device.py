"""One call sets up the simulated accelerator; the rest measures a device of any kind."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from runtime.device import (
    DEFAULT_HARDWARE,
    SimDevice,
    accelerator,
    clock,
    limited_memory,
    memory_stats,
    native,
    reset_peak_memory,
    sim_hardware,
    use_sim,
)
from solvers.ir.codec import document_to_raw
from solvers.ir.errors import InvalidInput
from solvers.ir.hardware import Device, Hardware, Link

pytestmark = pytest.mark.skipif(
    native.why_missing("runtime._sim") is not None, reason=str(native.why_missing("runtime._sim"))
)
MIB = 1 << 20


@pytest.fixture
def sim() -> Iterator[SimDevice]:
    with use_sim() as device:
        yield device


def test_what_is_not_said_is_the_default_hardware(sim: SimDevice) -> None:
    assert sim.hardware is DEFAULT_HARDWARE
    assert sim.capacity_bytes == 4 << 30
    assert torch.accelerator.current_accelerator() == torch.device("sim")


def test_hardware_comes_from_a_file(tmp_path: Path) -> None:
    slow = Hardware(
        name="slow",
        devices=(Device(name="d", memory_bytes=8 * MIB, bytes_per_s=1_000_000, launch_us=1.5),),
        links=(Link(a="host", b="d", bytes_per_s=1_000_000),),
    )
    path = tmp_path / "slow.json"
    path.write_text(json.dumps(document_to_raw(slow)))
    with use_sim(path, capacity_bytes=64 * MIB) as sim:
        a = torch.empty(1000, dtype=torch.uint8, device="sim")
        sim.reset()
        a.zero_()
        assert sim.hardware == slow
        assert sim.capacity_bytes == 64 * MIB
        assert (sim.host_ns(), sim.now_ns()) == (1_500, 1_500 + 1_000_000)


def test_a_name_of_shipped_hardware_is_told_how_it_is_read() -> None:
    with pytest.raises(InvalidInput, match=r"a name in conf/hardware is read by read_hardware\('sim-small'\)"):
        use_sim("sim-small")


def test_a_later_call_starts_anew(sim: SimDevice) -> None:
    kept = torch.ones(1000, device="sim")
    assert sim.now_ns() > 0 and sim.counters().kernels == 1
    again = use_sim()
    assert (again.now_ns(), again.host_ns(), again.counters().kernels) == (0, 0, 0)
    assert kept.sum().item() == 1000


def test_a_capacity_below_the_memory_in_use_is_refused(sim: SimDevice) -> None:
    kept = torch.empty(MIB, dtype=torch.uint8, device="sim")
    in_use = memory_stats(sim.device).reserved_bytes
    with pytest.raises(
        InvalidInput, match=f"capacity_bytes of 1024 is below the {in_use} bytes in use .* free tensors"
    ):
        use_sim(capacity_bytes=1024)
    with pytest.raises(InvalidInput, match="below"):
        sim.set_capacity(in_use - 1)
    sim.set_capacity(in_use)
    assert kept.numel() == MIB


def test_after_a_refusal_all_is_as_before(sim: SimDevice) -> None:
    kept = torch.ones(MIB, device="sim")
    before = (sim.now_ns(), sim.counters(), sim.capacity_bytes, sim_hardware())
    with pytest.raises(InvalidInput, match="capacity_bytes of 1024 is below"):
        use_sim(capacity_bytes=1024, allocator="caching", noise=0.5)
    assert not native.load("runtime._sim").caching()
    assert (sim.now_ns(), sim.counters(), sim.capacity_bytes, sim_hardware()) == before
    assert kept.sum().item() == MIB


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"noise": 1.0}, r"noise of 1.0 is outside \[0, 1\)"),
        ({"noise": -0.1}, r"noise of -0.1 is outside"),
        ({"seed": -1}, "seed of -1 is outside"),
        ({"seed": "a"}, "seed of 'a' is no integer"),
        ({"capacity_bytes": 1.5}, "capacity_bytes of 1.5 is no integer: give the device's bytes"),
        ({"capacity_bytes": "4GB"}, "capacity_bytes of '4GB' is no integer"),
        ({"capacity_bytes": -1}, "capacity_bytes of -1 is outside"),
        ({"capacity_bytes": 1 << 70}, "capacity_bytes of 1180591620717411303424 is outside"),
        ({"event_query_ns": 1 << 70}, "event_query_ns of 1180591620717411303424 is outside"),
        ({"shapes_only": "yes"}, "shapes_only='yes' is unknown"),
        ({"races": "maybe"}, "races='maybe' is unknown: choose of"),
        ({"hardware": "/nowhere/h.json"}, "/nowhere/h.json"),
        ({"hardware": Hardware(name="h", devices=(Device(name="d", memory_bytes=1),))}, "no link from 'host' to 'd'"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(options: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        use_sim(**options)  # type: ignore[arg-type]


def test_an_unknown_dtype_is_refused() -> None:
    device = Device(name="d", memory_bytes=1, flops_per_s={"float33": 1})
    hardware = Hardware(name="odd", devices=(device,), links=(Link(a="d", b="host", bytes_per_s=1),))
    with pytest.raises(InvalidInput, match="gives flops_per_s for 'float33', which is no torch dtype"):
        use_sim(hardware)


def test_another_backend_in_the_slot_is_refused() -> None:
    program = (
        "import torch; torch.utils.rename_privateuse1_backend('npu')\n"
        "from runtime.device import use_sim\n"
        "from solvers.ir.errors import InvalidInput\n"
        "try: use_sim()\n"
        "except InvalidInput as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "slot for foreign accelerators, which 'npu' holds" in done.stdout


def test_an_extension_that_is_missing_says_how_to_build_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from runtime.device import simulated

    def missing(name: str) -> None:
        raise native.NativeMissing(f"{name} is not built: install a C++ compiler and run `make build`")

    simulated.registered_native.cache_clear()
    monkeypatch.setattr(simulated, "load", missing)
    with pytest.raises(InvalidInput, match="not built: install a C\\+\\+ compiler"):
        use_sim()


def test_devices_by_name(sim: SimDevice) -> None:
    assert accelerator("sim") == sim.device
    assert accelerator("cpu") == torch.device("cpu")
    with pytest.raises(InvalidInput, match="device 'tpu' is unknown: choose of 'sim', 'cuda', 'cpu'"):
        accelerator("tpu")  # type: ignore[arg-type]
    if not torch.cuda.is_available():
        with pytest.raises(InvalidInput, match="device cuda is not available"):
            accelerator("cuda")


def test_the_clock_of_sim_is_virtual_and_waits(sim: SimDevice) -> None:
    now = clock(sim.device)
    before = now()
    torch.ones(MIB, device="sim")
    assert now() - before == sim.now_ns() == sim.host_ns()
    assert now() == now()


def test_the_clock_of_the_cpu_is_the_machines() -> None:
    now = clock(torch.device("cpu"))
    assert now() < now()


def test_memory_statistics(sim: SimDevice) -> None:
    base = memory_stats(sim.device).allocated_bytes
    reset_peak_memory(sim.device)
    torch.empty(MIB, dtype=torch.uint8, device="sim")
    stats = memory_stats(sim.device)
    assert (stats.allocated_bytes - base, stats.peak_bytes - base, stats.ooms, stats.retries) == (0, MIB, 0, 0)
    reset_peak_memory(sim.device)
    assert memory_stats(sim.device).peak_bytes == base
    with pytest.raises(InvalidInput, match="device cpu keeps no memory statistics"):
        memory_stats(torch.device("cpu"))


def test_counters(sim: SimDevice) -> None:
    pinned = sim.counters().pinned_bytes
    a = torch.ones(MIB, dtype=torch.uint8).pin_memory()
    b = a.to("sim")
    b.view(2, -1).t().cpu()
    counted = sim.counters()
    assert (counted.kernels, counted.bytes_to_device, counted.bytes_to_host) == (0, MIB, MIB)
    assert counted.pinned_bytes - pinned == MIB
    assert counted.fallbacks == 0
    b.add_(1)
    assert (sim.counters().kernels, sim.counters().fallbacks) == (1, 1)


def test_limited_memory_lowers_the_capacity_and_restores_it(sim: SimDevice) -> None:
    before, in_use = sim.capacity_bytes, memory_stats(sim.device).reserved_bytes
    with limited_memory(sim.device, in_use + MIB):
        kept = torch.empty(MIB, dtype=torch.uint8, device="sim")
        with pytest.raises(torch.OutOfMemoryError, match=f"of {in_use + MIB} bytes are in use and 0 are free"):
            torch.empty(1, device="sim")
        with limited_memory(sim.device, in_use + MIB // 2):
            assert sim.capacity_bytes == in_use + MIB // 2
        assert sim.capacity_bytes == in_use + MIB
    assert sim.capacity_bytes == before and kept.numel() == MIB


def test_limited_memory_is_restored_after_an_exception(sim: SimDevice) -> None:
    before = sim.capacity_bytes
    with pytest.raises(torch.OutOfMemoryError), limited_memory(sim.device, 512):
        torch.empty(MIB, device="sim")
    assert sim.capacity_bytes == before


@pytest.mark.parametrize("budget_bytes", [0, -5, (4 << 30) + 1])
def test_a_budget_that_is_not_there_is_refused(sim: SimDevice, budget_bytes: int) -> None:
    told = rf"budget of {budget_bytes} bytes is outside \(0, {4 << 30}\], the memory of device sim: ask for"
    with pytest.raises(InvalidInput, match=told), limited_memory(sim.device, budget_bytes):
        pass


def test_the_host_cannot_be_limited() -> None:
    with pytest.raises(InvalidInput, match="device cpu"), limited_memory(torch.device("cpu"), MIB):
        pass


def test_the_modelled_hardware_can_be_asked_for(sim: SimDevice) -> None:
    assert sim_hardware() is sim.hardware
    other = Hardware(
        name="other",
        devices=(Device(name="d", memory_bytes=MIB, bytes_per_s=1, launch_us=1.0),),
        links=(Link(a="host", b="d", bytes_per_s=1),),
    )
    use_sim(other, capacity_bytes=4 << 30)
    assert sim_hardware() is other
