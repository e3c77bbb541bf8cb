"""The host memory that swapping page-locks: its limit, and what a tensor takes of it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from runtime.device.native import core
from solvers.ir.swap import HostRounding


@contextmanager
def host_limit(limit_bytes: int | None, device: torch.device | None = None) -> Iterator[None]:
    """Page-lock at most this much host memory for a device inside; of earlier uses what is idle goes first, beyond it.

    Each device has memory and a limit of its own; None: all have this limit each.
    """
    if limit_bytes is not None and core.host_stats(device).held_bytes > limit_bytes:
        core.trim_host(device)
    core.set_host_limit(limit_bytes, device)
    try:
        yield
    finally:
        core.set_host_limit(None, device)


def host_rounding(device: torch.device) -> HostRounding:
    """What a tensor of the device takes of page-locked memory: its bytes, or the next power of two."""
    return "exact" if core.host_is_exact(device) else "power-of-two"


def settle_host(need_bytes: int, device: torch.device) -> None:
    """Between iterations: what other policies have page-locked makes way for one arena of what is needed now."""
    if core.host_stats(device).held_bytes > need_bytes + need_bytes // 20:
        core.trim_host(device)
    core.reserve_host(need_bytes, device)
