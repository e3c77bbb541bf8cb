"""When plans are made again for segments, by scripted passes: what each plan's segments take, and what is decided."""

import logging
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch

from runtime.device.memory import MemoryStats
from runtime.recompute import keeping, segments
from runtime.recompute.decisions import Decisions
from runtime.recompute.keeping import Keeping
from runtime.recompute.segments import JUDGED

MIB = 1 << 20
BUDGET = 1000


class Plans:
    """Decides for so many MiB: the more there are, the cheaper; `made` lists them."""

    joint = None

    def __init__(self) -> None:
        self.made: list[int] = []
        self.within = 0
        self.decided: object = None

    def decide(self, within_bytes: int) -> None:
        self.within = round(within_bytes / MIB)
        self.made.append(self.within)
        self.decided = object()

    @property
    def cost(self) -> float:
        return 2000 - self.within

    def keep(self) -> "Plans":
        kept = Plans()
        kept.within, kept.decided = self.within, self.decided
        return kept

    def go_back(self, kept: "Plans") -> None:
        self.within, self.decided = kept.within, kept.decided


class Passes:
    """A session's passes, of which each takes what `took` says of the plan in MiB."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, took: Callable[[int, int], int]) -> None:
        self.plans, self._took, self._now, self.count = Plans(), took, 0, 0
        self.keeping = Keeping(cast(Decisions, self.plans), BUDGET * MIB, torch.device("cpu"))
        self.keeping.segments.there = True
        for module in (keeping, segments):
            monkeypatch.setattr(module, "memory_stats", self._stats)
        monkeypatch.setattr(torch.accelerator, "empty_cache", lambda: None)
        self.keeping.decide()
        self.keeping.begin_plan()

    def _stats(self, _: Any) -> MemoryStats:
        used = self.plans.within * MIB
        return MemoryStats(0, used, self._now, self._now, 0, 0)

    def run(self, passes: int) -> list[int]:
        """For how many MiB the plan of each pass was."""
        found = []
        for _ in range(passes):
            self.count += 1
            self.keeping.segments.begin()
            self._now = self._took(self.plans.within, self.count) * MIB
            found.append(self.plans.within)
            self.keeping.end_part()
            self.keeping.settle(1)
        return found


def test_a_plan_that_takes_too_much_is_followed_by_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments take 180 beside the first plan, and half of what is in use of another one's last 400."""
    passes = Passes(monkeypatch, lambda within, _: within + 180 if within > 900 else within + 90)
    assert passes.run(20) == [1000] + [820] * 19
    assert passes.keeping.replanned == 1 and not passes.keeping.segments.judged
    assert passes.keeping.segments.most_bytes == 910 * MIB  # none of the first plan's


def test_a_plan_is_judged_for_three_passes(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """From some pass on everything takes 100 more."""
    plans = []
    for late in (JUDGED, JUDGED + 1):

        def took(within: int, count: int, late: int = late) -> int:
            return within - 50 + (100 if count >= late else 0)

        passes = Passes(monkeypatch, took)
        passes.run(10)
        plans.append(len(passes.plans.made))
    assert plans == [2, 1] and not caplog.records


def test_plans_come_to_an_end_where_none_keeps_the_budget(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The one that took least stays, and that is said once."""
    passes = Passes(monkeypatch, lambda within, count: 1200 + abs(within - 700))
    with caplog.at_level(logging.WARNING, logger="bayplan.recompute"):
        ran = passes.run(20)
    assert passes.plans.made[:4] == [1000, 500, 100, 0]
    assert ran[-1] == 500 and set(ran[4:]) == {500} and len(caplog.records) == 1
    assert "plans for less are the same" in caplog.records[0].getMessage()
