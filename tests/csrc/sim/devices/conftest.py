"""Machines of several devices; afterwards there is one again, and nothing on the others."""

from collections.abc import Callable, Iterator

import pytest
import torch
from msgspec.structs import replace

from runtime.device import SimDevice, use_sim
from runtime.device.native import load, why_missing
from runtime.device.settling import settled
from solvers.ir.hardware import HOST, Hardware, Link
from tests.csrc.sim.conftest import ROUND

MODEL = ROUND.devices[0]
LAUNCH = 2_000
HOST_LATENCY = 10_000
PEER_LATENCY = 3_000


def linked(names: str, links: tuple[Link, ...]) -> Hardware:
    """Devices by letters, each with the round numbers of one device, a host link of 1 GB/s, and these links."""
    devices = tuple(replace(MODEL, name=name) for name in names)
    to_host = tuple(Link(a=name, b=HOST, bytes_per_s=1_000_000_000, latency_us=10.0) for name in names)
    return Hardware(name="linked", devices=devices, links=to_host + links)


@pytest.fixture
def machine() -> Iterator[Callable[..., SimDevice]]:
    """As `use_sim` with the round hardware; two devices where nothing is said."""
    reason = why_missing("runtime._sim")
    if reason is not None:
        pytest.skip(reason)

    def begin(hardware: Hardware = ROUND, devices: int = 2, **options: object) -> SimDevice:
        _emptied()
        return use_sim(hardware, devices=devices, **options)  # type: ignore[arg-type]

    yield begin
    torch.accelerator.set_device_index(0)
    sim = _emptied()
    sim.set_tracing(False)
    use_sim(ROUND)


def _emptied() -> SimDevice:
    """All devices that there are, once what earlier programs dropped is gone."""
    sim = use_sim(ROUND, devices=load("runtime._sim").device_count())
    settled(lambda: sum(sim.at(index).bytes_in_use() for index in range(sim.devices)))
    return sim
