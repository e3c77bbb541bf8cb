"""What machine a session plans for: what sim models, or the device's memory and its link to the host as measured."""

import msgspec
import torch

from runtime.device import sim_hardware
from runtime.profile.links import measure_links
from solvers.ir.hardware import HOST, Device, Hardware, Link


def device_bytes(device: torch.device) -> int:
    """The device's memory as it is limited now."""
    return int(torch.accelerator.get_memory_info(device)[1])


def hardware_of(device: torch.device) -> Hardware:
    """What policies are made for: what sim models, or a device's link to the host as measured now."""
    return _from(sim_hardware(), device) if device.type == "sim" else measured_hardware(device)


def _from(hardware: Hardware, device: torch.device) -> Hardware:
    """The same with the device's own entry first: plans are made for that. A file of one device states all of them."""
    entries = [entry for entry in hardware.devices if entry.name != HOST]
    if not device.index < len(entries):
        return hardware
    own = entries[device.index]
    others = tuple(entry for entry in hardware.devices if entry is not own)
    return msgspec.structs.replace(hardware, devices=(own, *others))


def measured_hardware(device: torch.device) -> Hardware:
    """The device's memory and its link to the host, as measured now: planning on limited information needs no more."""
    name = str(device)
    return Hardware(
        name=name,
        devices=(Device(name=name, memory_bytes=device_bytes(device)),),
        links=measure_links(device, name),
        source=f"link measured on {device} with torch {torch.__version__}",
    )


def by_direction(hardware: Hardware) -> Hardware:
    """The same with every half-duplex link as two, one a direction, each of the whole rate.

    Swap problems know no shared links. Tensors leave in the forward pass and return in the backward pass, so that the
    directions seldom meet; where they do, swapping takes longer than the policy supposes.
    """
    links = [
        way
        for link in hardware.links
        for way in ((link,) if link.duplex != "half" else (_one_way(link, link.a), _one_way(link, link.b)))
    ]
    return msgspec.structs.replace(hardware, links=tuple(links))


def _one_way(link: Link, start: str) -> Link:
    end = link.b if start == link.a else link.a
    return msgspec.structs.replace(link, a=start, b=end, duplex="simplex")
