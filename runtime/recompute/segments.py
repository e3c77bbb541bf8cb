"""What the segments of a plan take: its allocator may hold more than the bytes in use, in blocks that fit nobody."""

import logging

import torch

from runtime.device.device import memory_limit_bytes, segment_settings
from runtime.device.memory import MemoryStats
from solvers.ir.amounts import show_bytes
from solvers.ir.errors import InfeasibleBudget

LOG = logging.getLogger("bayplan.recompute")


class Segments:
    """The most that a device's segments took since a plan began; on a device without segments always 0.

    `spare_bytes` of the budget are left to what segments take beside the bytes in use.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self.most_bytes, self.spare_bytes = device, 0, 0
        self._at_least: int | None = None
        self._there = device.type != "cpu" and segment_settings(device, memory_limit_bytes(device)) is not None

    def begin(self) -> None:
        """Another plan begins: what the allocator caches of the one before is given back."""
        if self._there:
            self.most_bytes = 0
            torch.accelerator.empty_cache()

    def look(self, stats: MemoryStats) -> None:
        """The statistics as they are now, of which the peak counts."""
        if self._there:
            self.most_bytes = max(self.most_bytes, stats.reserved_peak_bytes)

    def leave(self, peak_bytes: int) -> None:
        """Leave as much to segments as they took beside the most bytes in use."""
        self.spare_bytes = max(self.spare_bytes, self.most_bytes - peak_bytes)

    def leave_all_but_least(self, budget_bytes: int, error: InfeasibleBudget) -> bool:
        """Leave what the plan of the fewest bytes leaves; False where nobody knows it, or this was tried before."""
        if self._at_least is not None or error.least_budget_bytes is None:
            return False
        self.spare_bytes = self._at_least = max(0, budget_bytes - error.least_budget_bytes)
        return True

    def give_up(self, budget_bytes: int, error: InfeasibleBudget) -> None:
        """Say once that no plan takes fewer segments, and stay with that of the fewest bytes, where that is known."""
        self.spare_bytes = self._at_least or 0
        LOG.warning(
            "the plan keeps its budget of %s in bytes, but its segments take %s, and for fewer there is no plan (%s): "
            "raise the budget, or set PYTORCH_ALLOC_CONF=expandable_segments:True",
            show_bytes(budget_bytes),
            show_bytes(self.most_bytes),
            str(error),  # whoever keeps the record keeps no frames, which hold tensors
        )
