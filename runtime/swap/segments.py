"""A budget on an allocator that holds segments: what it is told, and what it held."""

import re
from dataclasses import replace
from functools import cache
from weakref import WeakMethod

import torch

from runtime.device import memory_stats, move_limit, reset_peak_memory, segment_settings
from runtime.device.higher_order import let_pass
from runtime.device.native import core
from runtime.device.undeclared_writes import UNDECLARED_WRITES, UNDECLARED_WRITES_OF_OTHER_DEVICES
from solvers.timeline.segments.settings import (
    LARGE_SEGMENT,
    LEAST_OWN_SEGMENT,
    MOST_SMALL,
    SMALL_SEGMENT,
    SegmentSettings,
)

SMALL_LEFT = 9 << 20
"""Left to small requests beyond what they have held: less than the least request that pages are mapped for."""
LEAST_SMALL = SMALL_SEGMENT
"""Small requests have to do with so much, rather than that no page is left to others."""
FEW_PAGES = 4
"""Of a budget of fewer pages none is left to small requests in turn: some operator may need it."""


LEAST_SEEN = 4096
"""Smaller tensors are not looked at, but where each of the few segments counts."""


def least_seen_bytes(device: torch.device, budget_bytes: int) -> int:
    """The least storage that a session with that budget looks at.

    A tensor of some bytes holds a segment of `SMALL_SEGMENT`. Where what is there when the session begins leaves no
    large segment, or only that, all have to leave; elsewhere their copies would cost time and win nothing.
    """
    settings = segment_settings(device, budget_bytes)
    if settings is None:
        return LEAST_SEEN
    large = LARGE_SEGMENT if settings.expandable else LEAST_OWN_SEGMENT
    return 1 if budget_bytes < large + _small_bytes(device) + SMALL_SEGMENT else LEAST_SEEN


@cache
def _let_operators_run_again() -> None:
    """Once a process, what the engine has to know before an operator that ran out of memory runs again."""
    let_pass("TESTING_ONLY_GenericWrapper")
    for name in (*UNDECLARED_WRITES, *UNDECLARED_WRITES_OF_OTHER_DEVICES):
        core.set_secret_writer(name)


class SegmentLimit:
    """How a session keeps a budget on a device; `settings` is None where the allocator holds exact bytes.

    `limit_bytes` is what the allocator is told so that it holds no more than the budget. It compares its limit before
    it maps the last page of an expandable segment, and may pass it by that page (20 MiB): unless what is left beside
    whole pages is too little for any request that is served by pages.
    """

    def __init__(self, device: torch.device, budget_bytes: int, engine: core.SwapSession) -> None:
        self._device = device
        self._engine = engine
        self._budget_bytes = budget_bytes
        self.settings = segment_settings(device, budget_bytes)
        if self.settings is not None:
            _let_operators_run_again()
            own = WeakMethod(self.adapt)  # the engine keeps what it is given
            engine.set_more(lambda: None if (adapt := own()) is None else adapt(failed=True))
        self._small_at_first = _small_bytes(device) + SMALL_SEGMENT if self._by_pages else 0
        self._without_arena_bytes, self._two_pages_bytes = self._limits(budget_bytes)
        self.limit_bytes = max(self._without_arena_bytes, self._two_pages_bytes)

    @property
    def _by_pages(self) -> bool:
        return self.settings is not None and self.settings.expandable

    def _limits(self, budget_bytes: int) -> tuple[int, int]:
        """What the allocator is told at first of such a budget, without an arena and with one; 0 where it has none."""
        if not self._by_pages:
            return budget_bytes, 0
        limit, small = budget_bytes - LARGE_SEGMENT, self._small_at_first
        one_page = LARGE_SEGMENT + small + SMALL_LEFT
        if limit < one_page:  # small requests, or that page, would have less than of a smaller budget
            limit = min(_whole_pages(budget_bytes, small), one_page)
        return limit, _two_pages(budget_bytes, small) if self.cuts else 0

    def adapt(self, *, failed: bool = False) -> None:
        """What small requests need is known, as an iteration ends or an operator fails: the rest goes to others."""
        small = self._engine.small_peak_bytes
        if not self._by_pages:
            return
        if self._engine.only_small:
            limit = max(self.limit_bytes, min(self._budget_bytes, small + SMALL_LEFT))
        elif self.pool_bytes:
            few = self._budget_bytes < FEW_PAGES * LARGE_SEGMENT
            limit = max(_whole_pages(self._budget_bytes, small), self.limit_bytes if few or failed else 0)
        elif self.limit_bytes == self._two_pages_bytes:
            limit = self._without_arena_bytes  # nobody has taken both pages at once
        else:
            return
        if limit != self.limit_bytes:
            self.limit_bytes = limit
            move_limit(self._device, limit)
            self._engine.set_budget(limit)

    @property
    def kind(self) -> core.SwapSegments:
        """How the allocator takes memory, as the engine wants to be told."""
        if self.settings is None:
            return core.SwapSegments.NONE
        return core.SwapSegments.EXPANDABLE if self.settings.expandable else core.SwapSegments.FIXED

    @property
    def cuts(self) -> bool:
        """Whether the allocator cuts blocks of any size from a segment: then the engine lets it have one for all."""
        return self.settings is not None and self.settings.max_split_bytes is None

    @property
    def pool_bytes(self) -> int:
        """What the allocator has at once for all requests above 1 MiB; 0 where it takes segments as they come."""
        return self._engine.pool_bytes

    def replayed(self) -> SegmentSettings | None:
        """By which rules policies are replayed now."""
        if self.settings is None:
            return None
        return replace(self.settings, pool_bytes=self.pool_bytes, limit_bytes=self.limit_bytes)

    def least_bytes(self, refused: str) -> int | None:
        """What a budget would have to be for the request that the allocator `refused` in these words, at least, beside
        what could not leave then, and above the present budget; None where the allocator holds exact bytes, or there
        was no such request.
        """
        asked = _asked_bytes(refused)
        least = self._engine.least_bytes if asked is None else self._engine.least_bytes_for(asked)
        if self.settings is None or least == 0:
            return None
        least = max(least, _next_segment(self.limit_bytes))  # it holds whole segments
        budget = max(least, _next_segment(self._budget_bytes))
        while max(*self._limits(budget), self._adapted(budget)) < least:
            budget += SMALL_SEGMENT
        return budget

    def _adapted(self, budget_bytes: int) -> int:
        """The limit of such a budget once it is known what small requests need."""
        return _whole_pages(budget_bytes, self._engine.small_peak_bytes) if self._by_pages else budget_bytes

    def give_cache_back(self) -> None:
        """Segments that others left may lie wrong for what comes: let the allocator begin with those in use.

        What the engine has taken for all stays, and segments for small requests alone are all alike: which of them a
        policy begins with makes no difference.
        """
        if not self._engine.only_small:
            self._give_back()

    def _give_back(self) -> None:
        if self.settings is not None and not self.pool_bytes:
            with torch.accelerator.device_index(self._device.index):
                torch.accelerator.empty_cache()

    def settle(self) -> None:
        """A policy is kept: what trying it and others has scattered is put together before the next operator."""
        if self.pool_bytes:
            self._engine.renew_arena()

    def begin(self) -> None:
        """The session begins or goes on: what was cached before is not its own, and may be more than its budget."""
        self._give_back()
        if self.settings is not None:
            reset_peak_memory(self._device)

    def reserved_peak_bytes(self, earlier_bytes: int, *, active: bool) -> int | None:
        """The most that the allocator held, until the last iteration and now; None where it holds exact bytes."""
        if self.settings is None:
            return None
        return max(earlier_bytes, memory_stats(self._device).reserved_peak_bytes if active else 0)


def _whole_pages(budget_bytes: int, small_bytes: int) -> int:
    """A limit under which pages for large requests leave so little to small ones, which need so much."""
    least = int(budget_bytes >= LARGE_SEGMENT + LEAST_SMALL)
    pages = max(least, (budget_bytes - small_bytes - SMALL_LEFT // 2) // LARGE_SEGMENT)
    return min(budget_bytes, pages * LARGE_SEGMENT + small_bytes + SMALL_LEFT)


def _two_pages(budget_bytes: int, small_bytes: int) -> int:
    """A limit under which two pages, an arena, leave small requests what they need at first; 0 if they do not."""
    if budget_bytes < 2 * LARGE_SEGMENT + small_bytes + SMALL_SEGMENT:
        return 0
    return min(budget_bytes, 2 * LARGE_SEGMENT + small_bytes + SMALL_LEFT - SMALL_SEGMENT)


def _next_segment(size: int) -> int:
    return (size // SMALL_SEGMENT + 1) * SMALL_SEGMENT


def _small_bytes(device: torch.device) -> int:
    return int(torch.accelerator.memory_stats(device)["reserved_bytes.small_pool.current"])


_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_ASKED = re.compile(r"tried to allocate ([\d.]+) (bytes|KiB|MiB|GiB)", re.IGNORECASE)
_REQUESTED = re.compile(r"for a request of (\d+) bytes")


def _asked_bytes(refused: str) -> int | None:
    """The request of which an allocator says that it has no memory for it, at least.

    It names the segment that it would take, CUDA's in hundredths of a unit and nothing else: one of 20 MiB is taken for
    any request of more than 1 and less than 10 MiB, one of 2 MiB for any that is smaller.
    """
    exactly = _REQUESTED.search(refused)
    if exactly is not None:
        return int(exactly[1])
    found = _ASKED.search(refused)
    if found is None:
        return None
    segment = int(float(found[1]) * _UNITS[found[2]])
    return {LARGE_SEGMENT: MOST_SMALL + 1, SMALL_SEGMENT: 1}.get(segment, segment)
