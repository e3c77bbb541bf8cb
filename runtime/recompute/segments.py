"""What the segments of a plan take: its allocator may hold more than the bytes in use, in blocks that fit nobody."""

import logging

import torch

from runtime.device.device import memory_limit_bytes, segment_settings
from runtime.device.memory import MemoryStats, memory_stats
from solvers.ir.amounts import show_bytes
from solvers.ir.errors import InfeasibleBudget

LOG = logging.getLogger("bayplan.recompute")


MOST_TURNS = 4
"""How often a plan is made again for what its segments took."""
LEAST_MORE = 1 / 100
JUDGED = 3
"""Passes in which a plan has to keep the budget: blocks lie otherwise among what the pass before has cached."""


class Segments:
    """What a device's segments take beside the bytes in use; on a device without segments nothing is ever looked at.

    A plan's first whole passes are *judged*, each from its first block to the end of its backward pass: what runs
    without gradients or has no backward pass is none, and neither is the optimizer's step. The first begins with an
    empty cache, and so does one before which such a pass of the model has cached more. What the optimizer and other
    models cache counts, as it stays. Once three, of batches as large as any before, have kept the budget no more are
    judged.
    `most_bytes` is the most that the allocator held since the plan began, whoever it was for, `judged_bytes` the same
    of judged passes; `spare_bytes` of the budget are left to segments.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self.most_bytes, self.judged_bytes, self.spare_bytes = device, 0, 0, 0
        settings = None if device.type == "cpu" else segment_settings(device, memory_limit_bytes(device))
        self._there, self._expandable = settings is not None, settings is not None and settings.expandable
        self._turns, self._least_bytes, self.judged = 0, 0, False
        self._begun, self._passes, self._largest = True, 0, 0
        self._left_bytes: int | None = None

    def judge(self) -> None:
        """Another plan begins with the next pass."""
        self.judged, self._begun = self._there, not self._there
        self._passes, self._left_bytes = 0, 0

    def stop(self, spare_bytes: int) -> None:
        """So much is left to segments from here on, and no pass is judged any more."""
        self.judged, self.spare_bytes = False, spare_bytes

    def begin(self) -> None:
        """A pass begins."""
        first, self._begun = not self._begun, True
        if first:
            self.most_bytes = self.judged_bytes = 0
        elif not self.judged:
            return
        if self._left_bytes is not None and memory_stats(self._device).reserved_bytes > self._left_bytes:
            torch.accelerator.empty_cache()

    def look(self, stats: MemoryStats) -> None:
        """The statistics as they are now, of which the peak counts."""
        if self._there:
            self.most_bytes = max(self.most_bytes, stats.reserved_peak_bytes)

    def end(self, stats: MemoryStats) -> None:
        """A backward pass is over."""
        if self.judged:
            self.judged_bytes = max(self.judged_bytes, stats.reserved_peak_bytes)
            self._left_bytes = None

    def stand_aside(self) -> None:
        """What is cached from here to the next pass is not the step's own."""
        if self.judged and self._left_bytes is None:
            self._left_bytes = memory_stats(self._device).reserved_bytes

    def settle(self, given_bytes: int) -> None:
        """A whole pass has ended, whose first block was given so much."""
        self.stand_aside()
        self._largest = max(self._largest, given_bytes)
        self._passes += given_bytes == self._largest

    def keeps(self, budget_bytes: int) -> bool:
        """Whether the plan has kept the budget in all passes that are judged."""
        return self.judged and self._passes >= JUDGED and self.judged_bytes <= budget_bytes

    def breaks(self, budget_bytes: int) -> bool:
        """Whether a judged pass took more than the budget."""
        return self.judged and self.judged_bytes > budget_bytes

    @property
    def tired(self) -> bool:
        """Whether plans were made again often enough."""
        return self._turns >= MOST_TURNS

    def leave(self, budget_bytes: int, peak_bytes: int) -> None:
        """Leave as much to segments as they took beside the most bytes in use.

        From the second time on at least a hundredth of the budget more, and at last twice what was too much.
        """
        self._turns += 1
        more = self.judged_bytes - budget_bytes
        if self._turns > 1:
            more = max(more, int(LEAST_MORE * budget_bytes))
        if self._turns == MOST_TURNS:
            more = max(more, 2 * (self.judged_bytes - budget_bytes))
        self.spare_bytes = min(budget_bytes, max(self.judged_bytes - peak_bytes, self.spare_bytes + more))

    def leave_all_but_least(self, budget_bytes: int, error: InfeasibleBudget) -> bool:
        """Leave what the plan of the fewest bytes leaves; False where nobody knows it, or this was tried before."""
        least = error.least_budget_bytes
        if least is None or not self._least_bytes < least < budget_bytes:
            return False
        self._least_bytes = least
        self.spare_bytes = budget_bytes - least
        return True

    def warn(self, budget_bytes: int, took_bytes: int, why: str) -> None:
        """Say that no plan was found whose segments keep the budget, and make no more for that."""
        self._turns = MOST_TURNS
        LOG.warning(
            "the plan keeps its budget of %s in bytes, but segments took %s, and none was found that takes fewer (%s): "
            "raise the budget%s",
            show_bytes(budget_bytes),
            show_bytes(took_bytes),
            why,  # no error: whoever keeps the record keeps no frames, which hold tensors
            "" if self._expandable else ", or set PYTORCH_ALLOC_CONF=expandable_segments:True",
        )
