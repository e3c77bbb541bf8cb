"""What a session may use, and what machine it plans for."""

from decimal import Decimal
from numbers import Real
from types import NoneType

import msgspec
import torch

from runtime.device import sim_hardware
from runtime.loop.arguments import require
from runtime.profile.links import measure_links
from solvers.ir.amounts import parse_budget
from solvers.ir.errors import InvalidInput
from solvers.ir.hardware import HOST, Device, Hardware, Link

MOST_BYTES = 2**63 - 1
"""The most that the native engine can count."""
REMEDY = "a number of bytes, an amount such as '20GiB' or a share such as '80%'"


def device_bytes(device: torch.device) -> int:
    """The device's memory as it is limited now."""
    return int(torch.accelerator.get_memory_info(device)[1])


def budget_of(budget: int | str | None, memory_bytes: int) -> int:
    """Bytes of a budget: a number, an amount such as `20GiB`, a percentage of the device's memory, or all of it.

    Raises `InvalidInput` where it means nothing, is not positive or is more than the device has.
    """
    if isinstance(budget, str):
        amount = parse_budget(budget, memory_bytes, "budget")
    else:
        require("budget", budget, (Real, NoneType), REMEDY)
        number: float = 0 if budget is None else budget
        if not abs(number) <= MOST_BYTES:  # NaN is not, either
            shown = "beyond any memory" if isinstance(number, int) else number
            raise InvalidInput(f"budget is {shown}: give {REMEDY}")
        amount = memory_bytes if budget is None else int(budget)
    if not 0 < amount <= memory_bytes:
        raise InvalidInput(
            f"budget of {amount} bytes is not between 1 and the device's {memory_bytes} bytes: give {REMEDY}"
        )
    return amount


def planned_bytes(budget_bytes: int, headroom: float) -> int:
    """What policies may use: the budget less its share `headroom`."""
    if not 0 <= headroom < 1:
        raise InvalidInput(f"headroom is {headroom}, outside [0, 1): it is a share of the budget")
    return int(Decimal(budget_bytes) * (1 - Decimal(str(headroom))))


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
