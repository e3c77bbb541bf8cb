"""A GPT and machines so small that a whole experiment takes seconds."""

import json
from pathlib import Path

import msgspec

from experiments.hardware import read_hardware
from solvers.ir.codec import document_to_raw
from solvers.ir.hardware import Hardware

SLOWER = 30
"""The tiny model's kernels are as much smaller than the demo's: a device that is slower by that much keeps them longer
than a launch, as the demo's are."""


LITTLE_WORK = ["limits.work=0.1", "limits.time_s=600"]
"""Enough for a good plan of the tiny model, and the same plan on a busy machine."""


def tiny_hardware(name: str) -> Hardware:
    """A shipped machine, slowed down in every rate."""
    hardware = read_hardware(name)
    (device,), (link,) = hardware.devices, hardware.links
    rates = {dtype: rate // SLOWER for dtype, rate in device.flops_per_s.items()}
    slow = msgspec.structs.replace(device, flops_per_s=rates, bytes_per_s=device.bytes_per_s // SLOWER)
    return msgspec.structs.replace(
        hardware,
        name=f"tiny {name}",
        devices=(slow,),
        links=(msgspec.structs.replace(link, bytes_per_s=link.bytes_per_s // SLOWER),),
    )


def tiny_overrides(folder: Path) -> list[str]:
    """The overrides that make any experiment tiny; the hardware files are written into the folder."""
    for name in ("sim-small", "sim-other"):
        (folder / f"{name}.json").write_text(json.dumps(document_to_raw(tiny_hardware(name))))
    return ["model=gpt-tiny", f"hardware.file={folder / 'sim-small.json'}", *LITTLE_WORK]
