"""What the segments of a plan take: its allocator may hold more than the bytes in use, in blocks that fit nobody."""

import logging

import torch

from runtime.device.device import memory_limit_bytes, segment_settings
from runtime.device.memory import MemoryStats, memory_stats
from solvers.ir.amounts import show_bytes
from solvers.ir.errors import InfeasibleBudget

LOG = logging.getLogger("bayplan.recompute")


MOST_TURNS = 3
"""How often a plan is made again for what its segments took."""
JUDGED = 3
"""Passes in which a plan has to keep the budget: blocks lie otherwise among what the pass before has cached."""


class Segments:
    """What a device's segments take beside the bytes in use; on a device without segments nothing is ever looked at.

    A plan's first passes are *judged*: the first begins with an empty cache, and so does one before which somebody
    else has cached more, so that this is not taken for the plan's own; once three have kept the budget no more are.
    `most_bytes` is the most that the allocator held since the plan began; `spare_bytes` of the budget are left to
    segments.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self.most_bytes, self.spare_bytes = device, 0, 0
        settings = None if device.type == "cpu" else segment_settings(device, memory_limit_bytes(device))
        self._there, self._expandable = settings is not None, settings is not None and settings.expandable
        self._turns, self._least_bytes, self.judged = 0, 0, False
        self._kept, self._left_bytes = 0, 0

    def judge(self) -> None:
        """Another plan begins with the next pass."""
        self.judged = self._there
        self._kept, self._left_bytes = 0, 0

    def begin(self) -> None:
        """A pass that is judged begins."""
        if self._kept == 0:
            self.most_bytes = 0
        if memory_stats(self._device).reserved_bytes > self._left_bytes:
            torch.accelerator.empty_cache()

    def look(self, stats: MemoryStats) -> None:
        """The statistics as they are now, of which the peak counts."""
        if self._there:
            self.most_bytes = max(self.most_bytes, stats.reserved_peak_bytes)

    def settle(self, budget_bytes: int) -> None:
        """A pass has ended."""
        if self.judged:
            self._kept += self.most_bytes <= budget_bytes
            self._left_bytes = memory_stats(self._device).reserved_bytes
            self.judged = self._kept < JUDGED and (self.most_bytes <= budget_bytes or self._turns < MOST_TURNS)

    def breaks(self, budget_bytes: int) -> bool:
        """Whether the judged pass took more than the budget, and the plan may be made again for it."""
        return self.judged and self.most_bytes > budget_bytes and self._turns < MOST_TURNS

    def leave(self, peak_bytes: int) -> None:
        """Leave as much to segments as they took beside the most bytes in use."""
        self._turns += 1
        self.spare_bytes = max(self.spare_bytes, self.most_bytes - peak_bytes)

    def leave_all_but_least(self, budget_bytes: int, error: InfeasibleBudget) -> bool:
        """Leave what the plan of the fewest bytes leaves; False where nobody knows it, or this was tried before."""
        least = error.least_budget_bytes
        if least is None or not self._least_bytes < least < budget_bytes:
            return False
        self._least_bytes = least
        self.spare_bytes = budget_bytes - least
        return True

    def give_up(self, budget_bytes: int, error: InfeasibleBudget) -> None:
        """Leave nothing to segments, and say that no plan takes fewer."""
        self.spare_bytes, self._turns = 0, MOST_TURNS
        LOG.warning(
            "the plan keeps its budget of %s in bytes, but segments took %s, and none was found that takes fewer (%s): "
            "raise the budget%s",
            show_bytes(budget_bytes),
            show_bytes(self.most_bytes),
            str(error),  # whoever keeps the record keeps no frames, which hold tensors
            "" if self._expandable else ", or set PYTORCH_ALLOC_CONF=expandable_segments:True",
        )
