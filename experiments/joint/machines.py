"""The machines of the study: one device with its host link, or a node of several alike that share every layer."""

from itertools import combinations

from msgspec.structs import replace

from experiments.hardware import read_hardware
from solvers.ir.hardware import HOST, Hardware, Link

LINKS = {"rtx-3090": "PCIe 3", "a100-sxm-80": "PCIe 4", "h200": "PCIe 5", "gh200-4": "NVLink-C2C"}
"""The host link of each machine."""
NVLINK_BYTES_PER_S = {"a100-sxm-80": 300_000_000_000, "h200": 450_000_000_000, "gh200-4": 450_000_000_000}
"""What a device sends over NVLink in all, a direction (data sheets); without an entry nodes talk over PCIe."""
NVLINK_LATENCY_US = 3.0


def machine_of(name: str, devices: int = 1) -> Hardware:
    """The hardware file's first device alone, or a node of as many alike, each with its own link to the host.

    Devices are joined as a mesh that adds up to the device's NVLink rate; where there is none, through one root port of
    the host link's rate, which all pairs share.
    """
    hardware = read_hardware(name)
    if devices == 1:
        return hardware
    first = hardware.device()
    host = hardware.link(first.name, HOST)
    names = [f"n0.d{number}" for number in range(devices)]
    rate, fast = NVLINK_BYTES_PER_S.get(name), name in NVLINK_BYTES_PER_S
    pairs = tuple(
        Link(
            a=a,
            b=b,
            bytes_per_s=host.bytes_per_s if rate is None else rate // (devices - 1),
            latency_us=NVLINK_LATENCY_US if fast else host.latency_us,
            shares=None if fast else "n0.pcie",
        )
        for a, b in combinations(names, 2)
    )
    return Hardware(
        name=f"{devices} × {name}",
        source=f"{devices} devices of {name}; joined as {'a mesh over NVLink' if fast else 'PCIe with one root port'}",
        devices=(*(replace(first, name=one) for one in names), *(d for d in hardware.devices if d.name == HOST)),
        links=(*(replace(host, a=one, b=HOST) for one in names), *pairs),
    )
