"""What a hardware file says of several simulated devices: which it describes, and how they are connected."""

import math
from collections.abc import Hashable, Iterable, Sequence

from solvers.ir.errors import InvalidInput, InvalidProblem
from solvers.ir.hardware import HOST, Device, Hardware
from solvers.timeline.collectives import Lane, lane_of

PlainLink = tuple[int, int, int]
"""Bytes a second, latency in nanoseconds, and the lane, which carries one transfer at a time."""

_HOST_END = -1


def modelled(hardware: Hardware, count: int) -> list[Device]:
    """The file's first accelerators, or its only one so many times; raises `InvalidInput` where it states too few."""
    stated = [device for device in hardware.devices if device.name != HOST] or [hardware.device()]
    if count > len(stated) > 1:
        raise InvalidInput(
            f"hardware {hardware.name!r} describes {len(stated)} devices, not {count}: ask for fewer, or describe one, "
            "then all are like it"
        )
    return stated[:count] if count <= len(stated) else stated * count


class Lanes:
    """Numbers the lanes of the links between the devices of one machine.

    Each direction of a link of full duplex is a lane, one of half duplex is a lane as a whole. Links that share a rate
    (`shares`) share their lanes. A file that describes one device for all gives each its own link to the host.
    """

    def __init__(self, hardware: Hardware, devices: Sequence[Device]) -> None:
        self._hardware = hardware
        self._names = [device.name for device in devices]
        self._numbers: dict[Hashable, int] = {}
        self._between: set[int] = set()

    def joins_devices(self) -> list[bool]:
        """By lane, whether a group of devices can want it."""
        return [number in self._between for number in range(len(self._numbers))]

    def to_host(self, index: int) -> list[PlainLink]:
        """The ways from the host to a device, and back."""
        return [self._way(_HOST_END, index), self._way(index, _HOST_END)]

    def to_peers(self, index: int) -> dict[int, PlainLink]:
        """The ways from a device to those others that the file links it with."""
        found = {}
        for other, name in enumerate(self._names):
            if name == self._names[index]:
                continue
            try:
                found[other] = self._way(index, other)
            except InvalidProblem:
                continue
            self._between.add(found[other][2])
        return found

    def numbers(self, lanes: Iterable[Lane]) -> list[int]:
        """The numbers of lanes between devices, each of which has a name of its own."""
        found = [self._numbers.setdefault((lane, None), len(self._numbers)) for lane in sorted(lanes)]
        self._between.update(found)
        return found

    def _way(self, source: int, target: int) -> PlainLink:
        names = [HOST if end == _HOST_END else self._names[end] for end in (source, target)]
        link = self._hardware.link(*names)
        alike = link.shares is None and len(set(self._names)) < len(self._names)
        key = (lane_of(link, names[1]), frozenset({source, target}) if alike else None)
        number = self._numbers.setdefault(key, len(self._numbers))
        return link.bytes_per_s, math.ceil(link.latency_us * 1000), number
