"""What the segments of a plan take: its allocator may hold more than the bytes in use, in blocks that fit nobody.

One file: what is left to segments, what they are given ahead and how they are judged are one state.
"""

import logging
from typing import NamedTuple

import torch

from runtime.device.device import memory_limit_bytes, segment_settings
from runtime.device.held import held_memory
from runtime.device.memory import MemoryStats, memory_stats
from runtime.recompute.foresight import Taken
from solvers.ir.amounts import show_bytes
from solvers.ir.errors import InfeasibleBudget
from solvers.timeline.segments.settings import LARGE_SEGMENT, LEAST_OWN_SEGMENT, SMALL_SEGMENT

LOG = logging.getLogger("bayplan.recompute")
MOST_TURNS = 4
"""How often a plan is made again for what its segments took."""
LEAST_MORE = 1 / 100
LEAST_MARGIN, MOST_MARGIN = 1 / 50, 1 / 8
"""The largest block of a plan stays free, so that another such finds its place, within these shares of the budget."""
JUDGED = 3
"""Passes in which a plan has to keep the budget: blocks lie otherwise among what the pass before has cached."""


class _Pools(NamedTuple):
    """Bytes of both pools, and what the one for requests of up to 1 MiB holds."""

    reserved: int
    used: int
    small: int
    small_peak: int


class Segments:
    """What a device's segments take beside the bytes in use; on a device without segments nothing is ever looked at.

    So that there is little of that, plans leave a margin (`leave_margin`), and where segments do not grow, each pass
    begins with one for all that it will ask for (`_lend`): an *arena*, from which the allocator cuts blocks of any
    size, where segments of 20 MiB would be half empty.
    A plan's first whole passes are *judged*, each from its first block to the end of its backward pass: what runs
    without gradients or has no backward pass is none, and neither is the optimizer's step. The first begins with an
    empty cache, and so does one before which such a pass of the model has cached more. What the optimizer and other
    models cache counts, as it stays. Once three, of batches as large as any before, have kept the budget no more are
    judged.
    `most_bytes` is the most that the allocator held since the plan began, whoever it was for, `judged_bytes` the same
    of judged passes; `spare_bytes` of the budget are left to segments.
    """

    def __init__(self, device: torch.device, budget_bytes: int) -> None:
        self._device, self.most_bytes, self.judged_bytes, self.spare_bytes = device, 0, 0, 0
        settings = None if device.type == "cpu" else segment_settings(device, memory_limit_bytes(device))
        self.there, self._expandable = settings is not None, settings is not None and settings.expandable
        self._fixed = settings is not None and not settings.expandable and settings.max_split_bytes is None
        self._budget_bytes = self._most_bytes = budget_bytes
        self._turns, self._least_bytes, self.judged = 0, 0, False
        self._begun, self._passes, self._largest = True, 0, 0
        self._left_bytes: int | None = None
        self._small_bytes = self._margin_bytes = self._holes_bytes = 0
        self._expected_bytes = self._stored_bytes = self._lent_bytes = 0
        self._foreseen: Taken | None = None

    def _pools(self) -> _Pools:
        told = torch.accelerator.memory_stats(self._device)
        return _Pools(
            told["reserved_bytes.all.current"],
            told["allocated_bytes.all.current"],
            told["reserved_bytes.small_pool.current"],
            told["reserved_bytes.small_pool.peak"],
        )

    def remember(self) -> None:
        """What the measured step has cached for small requests, and whether large ones came from one stream.

        Those of other streams would find no place in an arena. The cache goes back to the driver next.
        """
        if not self.there:
            return
        self._small_bytes = max(self._small_bytes, self._pools().small)
        held = held_memory(self._device)
        streams = set() if held is None else {run.stream for run in held.runs if not run.small}
        self._fixed = self._fixed and len(streams) <= 1

    def leave_margin(self, largest_block_bytes: int) -> None:
        """For the first plan: what holes of what stays, and blocks between others, will take as far as that is known.

        What the measured step cached for small requests is what these take, beside what plans store.
        """
        if not self.there:
            return
        self.remember()
        torch.accelerator.empty_cache()
        now, most = self._pools(), int(MOST_MARGIN * self._budget_bytes)
        self._margin_bytes = min(most, max(int(LEAST_MARGIN * self._budget_bytes), largest_block_bytes))
        self._holes_bytes = min(most, now.reserved - now.used)
        if self._expandable:  # they grow by pages, and holes between others are within reach of these
            self._holes_bytes = max(0, self._budget_bytes - self._small_bytes) % LARGE_SEGMENT
        self.spare_bytes = self.least_spare_bytes

    @property
    def replays(self) -> bool:
        """Whether the allocator is one that a replay knows: its large requests come from one stream."""
        return self._fixed or self._expandable

    def leave_little(self) -> None:
        """For a first plan whose requests are replayed: what is known to be lost, and a little."""
        if self.there:
            self.spare_bytes = self._holes_bytes + int(LEAST_MORE * self._budget_bytes)

    @property
    def other_remedy(self) -> str:
        """What else helps than a larger budget, as the end of a sentence."""
        return "" if self._expandable else ", or set PYTORCH_ALLOC_CONF=expandable_segments:True"

    @property
    def least_spare_bytes(self) -> int:
        """What plans leave to segments in any case."""
        return self._holes_bytes + self._margin_bytes

    def expect(self, promised_bytes: int, small_stored_bytes: int, foreseen: Taken | None = None) -> None:
        """What a plan promises to take at most, and stores in small blocks beside what the measured step had.

        `foreseen`: what a replay of its requests held, where there was one.
        """
        self._expected_bytes = promised_bytes + self.least_spare_bytes
        self._stored_bytes, self._foreseen = small_stored_bytes, foreseen

    def _lend(self) -> None:
        """Have the allocator cache one segment for all large requests of a pass, but what small ones will need.

        Not where the device ends at the budget and the plan leaves less than it should: what finds no place in an arena
        would find none at all, where of other segments the allocator gives back what it caches.
        """
        ends = memory_limit_bytes(self._device) < self._budget_bytes + LARGE_SEGMENT if self._fixed else False
        known = self._foreseen
        if not self._fixed or (known is None and ends and self._expected_bytes > self._budget_bytes):
            return
        within = min(self._most_bytes, self._expected_bytes) if known is None else known.within_bytes
        if within is None:
            return
        now = self._pools()
        small = self._small_bytes + self._stored_bytes if known is None else known.small_bytes
        room = within - now.reserved - max(0, small - now.small)
        room -= room % SMALL_SEGMENT
        if room >= LEAST_OWN_SEGMENT:
            try:
                torch.empty(room, dtype=torch.uint8, device=self._device)
            except torch.OutOfMemoryError:
                return  # somebody else has it
        self._lent_bytes = memory_stats(self._device).reserved_bytes

    def judge(self) -> None:
        """Another plan begins with the next pass."""
        self.judged, self._begun = self.there, not self.there
        self._passes, self._left_bytes = 0, 0

    @property
    def begins(self) -> bool:
        """Whether the next pass is a plan's first."""
        return not self._begun

    def stop(self, spare_bytes: int) -> None:
        """So much is left to segments from here on, and no pass is judged any more."""
        self.judged, self.spare_bytes = False, spare_bytes

    def begin(self) -> None:
        """A pass begins."""
        first, self._begun = not self._begun, True
        if first:
            self.most_bytes = self.judged_bytes = 0
        reserved = memory_stats(self._device).reserved_bytes if self.there else 0
        if (first or self.judged) and self._left_bytes is not None and reserved > self._left_bytes:
            torch.accelerator.empty_cache()
            self._lend()
        elif reserved < self._lent_bytes:
            self._lend()  # somebody gave it back

    def look(self, stats: MemoryStats) -> None:
        """The statistics as they are now, of which the peak counts."""
        if self.there:
            self.most_bytes = max(self.most_bytes, stats.reserved_peak_bytes)

    def end(self, stats: MemoryStats) -> None:
        """A backward pass is over."""
        if self.judged:
            self.judged_bytes = max(self.judged_bytes, stats.reserved_peak_bytes)
            if self._fixed and stats.reserved_peak_bytes > self._budget_bytes:
                self._small_bytes = max(self._small_bytes, self._pools().small_peak - self._stored_bytes)
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

        From the second time on at least a hundredth of the budget more, and at last twice what was too much. What lay
        beside an arena is a whole segment, however little lacked: at first no more than the margin is left for it.
        """
        self._turns += 1
        more = self.judged_bytes - budget_bytes
        if self._lent_bytes and self._turns < MOST_TURNS:
            more = min(more, self._turns * self._margin_bytes)
            self._margin_bytes += more
        if self._turns > 1:
            more = max(more, int(LEAST_MORE * budget_bytes))
        if self._turns == MOST_TURNS:
            more = max(more, 2 * (self.judged_bytes - budget_bytes))
        self.spare_bytes = min(budget_bytes, max(budget_bytes + more - peak_bytes, self.spare_bytes + more))

    def leave_all_but_least(self, budget_bytes: int, error: InfeasibleBudget) -> bool:
        """Leave what the plan of the fewest bytes leaves; False where nobody knows it, or this was tried before."""
        least = error.least_budget_bytes
        if least is None or not self._least_bytes < least < budget_bytes:
            return False
        self._least_bytes = least
        self.spare_bytes = budget_bytes - least
        return True

    def warn(self, budget_bytes: int, took_bytes: int, why: str) -> None:
        """Say that no plan was found whose segments keep the budget, and make no more for that.

        The arena may then be larger than the budget: segments beside it would take more than it lacks.
        """
        self._turns, self._most_bytes = MOST_TURNS, max(budget_bytes, took_bytes)
        LOG.warning(
            "the plan keeps its budget of %s in bytes, but segments took %s, and none was found that takes fewer (%s): "
            "raise the budget%s",
            show_bytes(budget_bytes),
            show_bytes(took_bytes),
            why,  # no error: whoever keeps the record keeps no frames, which hold tensors
            self.other_remedy,
        )
