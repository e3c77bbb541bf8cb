"""Devices and links: what rooflines, the simulated accelerator and problem makers read (formats.md 10)."""

import math
from typing import Annotated, ClassVar, Literal

import msgspec

from solvers.ir.errors import InvalidProblem
from solvers.ir.fields import Bytes, NonNegativeFloat, Rate, Record, require, require_unique

Efficiency = Annotated[float, msgspec.Meta(gt=0, le=1)]
HOST = "host"
"""The name that a hardware file gives to host memory."""
TF32 = "tf32"
"""Among the dtypes of `flops_per_s`: products of float32 in TensorFloat-32, which programs have to ask for."""


class Device(Record, frozen=True, kw_only=True):
    """One accelerator (or the host).

    `flops_per_s` maps a dtype name (`float32`, `bfloat16`, …, `tf32`) to its peak rate; `bytes_per_s` is the device
    memory's bandwidth; `launch_us` what the host spends to launch one kernel; `efficiency` the fraction of the roofline
    that an operator class reaches, 1 if absent (`matmul`, `attention`, `convolution`, `elementwise`, `reduction`,
    `copy`, `other`); `collective` is the fraction of the links' rate that collectives reach, 1 if absent.
    """

    name: str
    memory_bytes: Bytes
    flops_per_s: dict[str, Rate] = msgspec.field(default_factory=dict)
    bytes_per_s: Rate = 1
    launch_us: NonNegativeFloat = 0.0
    efficiency: dict[str, Efficiency] = msgspec.field(default_factory=dict)

    def reached(self, op_class: str) -> float:
        """Fraction of the roofline that this operator class reaches."""
        return self.efficiency.get(op_class, self.efficiency.get("other", 1.0))


class Link(Record, frozen=True, kw_only=True):
    """A connection between two devices.

    `full` duplex: each direction has the whole rate; `half`: both directions share it; `simplex`: only from `a` to `b`
    (a measured pair of unequal directions is two simplex links). `shares` names a bundle whose links share one rate.
    """

    a: str
    b: str
    bytes_per_s: Rate
    latency_us: NonNegativeFloat = 0.0
    duplex: Literal["full", "half", "simplex"] = "full"
    shares: str | None = None

    def transfer_us(self, size_bytes: int) -> int:
        """Time of one transfer: latency plus bytes over rate, each rounded up to whole microseconds."""
        return math.ceil(self.latency_us) + -(-size_bytes * 1_000_000 // self.bytes_per_s)


class Hardware(Record, frozen=True, kw_only=True):
    """A named set of devices and links, with the source of its numbers (`bayplan-hardware/1`)."""

    name: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...] = ()
    source: str = ""
    FORMAT: ClassVar[str] = "bayplan-hardware/1"

    def __post_init__(self) -> None:
        """Refuse an empty machine, repeated names and links to nowhere."""
        require(bool(self.devices), f"hardware {self.name!r} has no device: list at least one under devices")
        require_unique([device.name for device in self.devices], "device")
        names = {device.name for device in self.devices} | {HOST}
        for number, link in enumerate(self.links):
            for end in (link.a, link.b):
                require(
                    end in names, f"links[{number}] ends at {end!r}, which is not a device: choose of {sorted(names)}"
                )

    def device(self, name: str | None = None) -> Device:
        """The device of that name, or the first one that is not the host."""
        for device in self.devices:
            if device.name == name or (name is None and device.name != HOST):
                return device
        raise InvalidProblem(f"hardware {self.name!r} has no device {name!r}: it has {[d.name for d in self.devices]}")

    def link(self, source: str, target: str) -> Link:
        """The link that carries data from `source` to `target`."""
        for link in self.links:
            forward = (link.a, link.b) == (source, target)
            if forward or (link.duplex != "simplex" and (link.b, link.a) == (source, target)):
                return link
        raise InvalidProblem(f"hardware {self.name!r} has no link from {source!r} to {target!r}: add one under links")
