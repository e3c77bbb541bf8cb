"""The memory statistics of a device of any kind."""

from typing import NamedTuple

import torch

from solvers.ir.errors import InvalidInput


class MemoryStats(NamedTuple):
    """Device memory in bytes: in use by tensors, the most of it, held by the allocator, and its failures."""

    allocated_bytes: int
    peak_bytes: int
    reserved_bytes: int
    reserved_peak_bytes: int
    ooms: int
    retries: int


def memory_stats(device: torch.device) -> MemoryStats:
    """The allocator's statistics of an accelerator; raises `InvalidInput` for the CPU, which has none."""
    require_accelerator(device)
    raw = torch.accelerator.memory_stats(device)
    return MemoryStats(
        allocated_bytes=raw["allocated_bytes.all.current"],
        peak_bytes=raw["allocated_bytes.all.peak"],
        reserved_bytes=raw["reserved_bytes.all.current"],
        reserved_peak_bytes=raw["reserved_bytes.all.peak"],
        ooms=raw["num_ooms"],
        retries=raw["num_alloc_retries"],
    )


def reset_peak_memory(device: torch.device) -> None:
    """Lets the peak start again from what is in use now."""
    require_accelerator(device)
    torch.accelerator.reset_peak_memory_stats(device)


def require_accelerator(device: torch.device) -> None:
    """Raise `InvalidInput` for the CPU."""
    if device.type == "cpu":
        raise InvalidInput("device cpu keeps no memory statistics: use sim or cuda")


def index_of(device: torch.device) -> int:
    """The index of an accelerator, the thread's current one where the name leaves it out."""
    return torch.accelerator.current_device_index() if str(device) == device.type else int(device.index)
