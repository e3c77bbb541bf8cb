"""What is asked of a device's allocator, step by step, while somebody wants to know."""

from typing import NamedTuple

import torch

from runtime.device.device import memory_limit_bytes, segment_settings
from runtime.device.native import load

MOST_STEPS = 1 << 20
"""So many steps of the allocator are kept: what came before is forgotten."""


class Step(NamedTuple):
    """Bytes taken at an address for a stream, or (below 0) given back."""

    address: int
    bytes: int
    stream: int


Told = tuple[int, list[Step]]
"""How many requests came before the first one that is known, since the device's statistics began; and these."""


class RequestTrace:
    """Keeps what the allocator of a simulated device with segments is asked; nothing is known on other devices.

    Where somebody keeps the allocator's steps already (`Device.record_memory`), they stay.
    """

    def __init__(self, device: torch.device) -> None:
        self._index = device.index or 0
        there = device.type == "sim" and segment_settings(device, memory_limit_bytes(device)) is not None
        self._native = load("runtime._sim") if there else None
        self._device, self._own, self._told = device, False, None  # type: torch.device, bool, Told | None
        if self._native is not None and not self._native.memory_snapshot(self._index)[1]:
            self._own = True
            self._native.record_memory(MOST_STEPS, self._index)

    def stop(self) -> None:
        """Keep no more."""
        if self._told is None:
            self._told = self.steps()
        if self._native is not None and self._own:
            self._native.record_memory(0, self._index)
        self._native = None

    def steps(self) -> Told | None:
        """What was asked until now, or until it stopped."""
        if self._native is None:
            return self._told
        told = self._native.memory_snapshot(self._index)[1]
        steps = [
            Step(address, size if action == "alloc" else -size, stream)
            for action, address, size, stream, _, _ in told
            if action in ("alloc", "free_requested")
        ]
        stats = torch.accelerator.memory_stats(self._device)
        total = stats["allocation.all.allocated"] + stats["allocation.all.freed"]
        return total - len(steps), steps
