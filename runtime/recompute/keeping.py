"""Plans that keep a budget: made again where one took more than was reckoned, in bytes or in segments.

One file: what was decided, foreseen and seen of a plan is one state.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from runtime.device import memory_stats
from runtime.recompute.decisions import Decisions, Kept
from runtime.recompute.footprint import Footprint
from runtime.recompute.foresight import Foresight, Taken
from runtime.recompute.requested import Pass
from runtime.recompute.segments import Segments
from runtime.recompute.together import Together
from solvers.ir.errors import InfeasibleBudget

LOG = logging.getLogger("bayplan.recompute")
MOST_CORRECTIONS = 6
"""How often a plan that took more than the budget is made again."""
LEAST_LEFT = 1 / 100
"""Share of the budget that stays free from the second of these times on, doubled each time: steps differ."""
MOST_REPLAYS = 4
"""How often a plan is made for less, as its segments would take more, before the one of the fewest bytes is."""
HALVINGS = 3
"""How often less is left free, where there is no plan otherwise, before nothing is."""


@dataclass(frozen=True)
class _Tried:
    """A plan whose segments took more than the budget: what it left to them, what they took, and how to go back.

    `foreseen`: it did not run, and takes that by a replay.
    """

    spare_bytes: int
    took_bytes: int
    cost: float
    plan: Kept
    foreseen: Taken | None = None


class Keeping:
    """Decides for a budget, sees what passes take, and decides again; `most_bytes` were in use since the plan began.

    `kept_bytes` were in use since the first plan did, whatever was planned again; 0 where nobody looked yet.
    `left_bytes` stay free where there is a plan with so much less, for blocks that the measured step did not call, and
    where steps took more and more.
    Of ranks that decide together (`Together`) the one who asks says what is so on any of them.
    """

    def __init__(self, plans: Decisions, budget_bytes: int, device: torch.device) -> None:
        self.plans, self.budget_bytes, self.device = plans, budget_bytes, device
        self.segments, self._tried = Segments(device, budget_bytes), list[_Tried]()
        self.most_bytes = self._passes_bytes = self.kept_bytes = self.left_bytes = 0
        self.replanned = self._corrected = 0
        self._begun = self._warned = False
        self._refused: InfeasibleBudget | None = None
        self.foresight: Foresight | None = None
        self._foreseen: Taken | None = None

    @property
    def within_budget(self) -> bool | None:
        """Whether the budget was kept since the first plan, by segments since the last; None: nothing was seen."""
        return max(self.kept_bytes, self.segments.most_bytes) <= self.budget_bytes if self.kept_bytes else None

    def decide(self) -> None:
        """For the budget, less what segments take beside the bytes in use; raises `InfeasibleBudget`."""
        within = self.budget_bytes - self.segments.spare_bytes
        for _ in range(HALVINGS):
            if not self.left_bytes:
                break
            try:
                self.plans.decide(within - self.left_bytes)
                return
            except InfeasibleBudget:
                self.left_bytes //= 2
        self.left_bytes = 0  # what was seen is kept to, and nothing beside it
        self.plans.decide(within)

    def foresee(self, measured: Pass | None, footprint: Footprint, stays: Callable[[], Iterable[torch.Tensor]]) -> None:
        """A pass was measured, with what it asked the allocator for, where that is known."""
        known = measured is not None and self.segments.there
        self.foresight = Foresight(self.device, measured, footprint, stays) if measured and known else None

    def decide_first(self) -> None:
        """For the budget, less a margin where segments are, as far as there is a plan for so little; it begins."""
        segments = self.segments
        segments.leave_margin(self.plans.largest_bytes)
        foresight = self.foresight if self._together is None and segments.replays else None
        if self._together is not None:
            segments.spare_bytes = 0
        elif foresight is not None:
            segments.leave_little()
        self._foreseen, found = None, bool(segments.spare_bytes) and self._decide_between(0)
        error = self._refused
        if not found and error is not None and segments.leave_all_but_least(self.budget_bytes, error):
            found = bool(self._decides())
        if not found:
            segments.spare_bytes = 0
            self.decide()
        if foresight is None or self._foresee(foresight):
            self.begin_plan()

    def _foresee(self, foresight: Foresight) -> bool:
        """Decide again, for less, until a replay of the plan's requests keeps the budget; False where none does.

        Raises `InfeasibleBudget` where nothing was planned before, with what the plan of the fewest bytes needs.
        """
        segments, budget_bytes = self.segments, self.budget_bytes
        for turn in range(MOST_REPLAYS):
            taken = self._foreseen_by(foresight)
            if taken.bytes <= budget_bytes:
                return True
            last = segments.spare_bytes
            more = max(taken.bytes - budget_bytes, int(LEAST_LEFT * budget_bytes) << turn)
            segments.spare_bytes = min(budget_bytes, last + more)
            if not self._decide_between(last):
                break
        return self._foresee_least(foresight)

    def _foreseen_by(self, foresight: Foresight) -> Taken:
        """What the plan takes: within the budget, or at least."""
        taken = foresight.of(self.plans.policies()).within(self.budget_bytes)
        if taken.bytes <= self.budget_bytes:
            self._tried.clear()
            self._foreseen = taken
        else:
            spare_bytes, plan = self.segments.spare_bytes, self.plans.keep()
            self._tried.append(_Tried(spare_bytes, taken.bytes, self.plans.cost, plan, taken))
        return taken

    def _foresee_least(self, foresight: Foresight) -> bool:
        """Decide for the fewest bytes."""
        self.segments.spare_bytes = self.budget_bytes
        self._decides()
        error = self._refused
        if error is not None and error.least_budget_bytes is not None:
            self.segments.spare_bytes = max(0, self.budget_bytes - error.least_budget_bytes)
        if self._decides() is None:
            self.segments.spare_bytes = 0
            self.decide()
        least = self._foreseen_by(foresight).bytes
        if least <= self.budget_bytes:
            return True
        if self._begun:  # what trained is not lost
            self._go_back("a step was measured again, and no plan for it was found whose segments keep the budget")
            return False
        self._tried.clear()
        raise InfeasibleBudget(
            f"the budget is {self.budget_bytes} bytes, and no plan was found whose segments keep it: the one of the "
            f"fewest bytes takes {least}, by a replay of what the measured step asked the allocator for: raise it to "
            f"that{self.segments.other_remedy}",
            least,
        )

    def _decide_between(self, spare_bytes: int) -> bool:
        """Leave what is to be left to segments; more, where that is a plan that took too much, and less, where none is.

        Always more than `spare_bytes`. False where no other plan is found.
        """
        more, segments = int(LEAST_LEFT * self.budget_bytes), self.segments
        for _ in range(2 * HALVINGS):
            found = self._decides()
            if found:
                return True
            if found is None:
                segments.spare_bytes = (segments.spare_bytes + spare_bytes) // 2
            else:
                spare_bytes, more = segments.spare_bytes, 2 * more
                segments.spare_bytes = min(self.budget_bytes, spare_bytes + more)
        return False

    def _decides(self) -> bool | None:
        """Whether there is another plan than those that took too much; None: there is none at all."""
        try:
            self.decide()
        except InfeasibleBudget as error:
            self._refused = error.with_traceback(None)  # whose frames hold tensors
            return None
        return all(one.cost != self.plans.cost for one in self._tried)

    def decide_for_more(self) -> None:
        """More is in use than ever where a pass begins, so that the plan's peak would be above the budget."""
        self._tried.clear()
        self._decide_again()

    def begin_again(self) -> None:
        """Another step was measured: what was learned of the last one's plans says nothing of the next."""
        self.plans.beyond_bytes = self._corrected = 0
        self._tried.clear()

    def begin_plan(self) -> None:
        """The next pass is another plan's."""
        self._begun = True
        self.segments.judge()
        self.forget_peaks()

    def begin_pass(self) -> None:
        """A pass begins, with segments for all of it where it is the plan's first."""
        if self.segments.begins:
            self.segments.expect(self.plans.promised_bytes, self.plans.small_bytes, self._foreseen)
        self.segments.begin()

    def forget_peaks(self) -> None:
        """What was seen until here is none of the plan's."""
        self.most_bytes = self._passes_bytes = 0

    def begin_peak(self) -> None:
        """The device's peaks are those from here on."""
        torch.accelerator.reset_peak_memory_stats(self.device)

    def end_peak(self, *, measured: bool = False) -> None:
        """The peaks until here count, whatever ran; `measured`: a pass that is none of the plan's."""
        stats = memory_stats(self.device)
        self.segments.look(stats)
        self.note_peak(stats.peak_bytes, measured=measured)

    def note_peak(self, peak_bytes: int, *, measured: bool = False) -> None:
        """So much was in use, as statistics or, of a pass that was `measured`, its log tells."""
        self.most_bytes = max(self.most_bytes, peak_bytes)
        if self._begun:
            self.kept_bytes = max(self.kept_bytes, peak_bytes)
        if self.kept_bytes > self.budget_bytes and not self._warned:
            self._warn(measured=measured)

    def _warn(self, *, measured: bool) -> None:
        """Say once that a step took more than the budget."""
        self._warned = True
        why = "outside of the blocks' passes, as in the optimizer's step, which no plan changes; raise the budget"
        if measured:
            why = "steps like it are measured and planned for; this one stored nothing of the blocks"
        elif self._passes_bytes > self.budget_bytes:
            why = (
                "steps take more than the one that was measured, so it is planned again; give a smaller budget where "
                "that must not happen"
            )
        LOG.warning(
            "a step took %d bytes, %d more than the budget of %d: %s",
            self.kept_bytes,
            self.kept_bytes - self.budget_bytes,
            self.budget_bytes,
            why,
        )

    def end_part(self) -> None:
        """The peaks until here are a pass's: of its blocks' forward parts, or of all of it."""
        stats = memory_stats(self.device)
        self._passes_bytes = max(self._passes_bytes, stats.peak_bytes)
        self.segments.end(stats)
        self.end_peak()

    def settle(self, given_bytes: int) -> None:
        """A whole pass has ended, whose first block was given so much: keep the plan, or make another one."""
        self.segments.settle(given_bytes)
        if self._together is None:
            self.correct(*self.broken)
        if self.segments.keeps(self.budget_bytes):
            self.segments.stop(self.segments.spare_bytes)
        elif self._together is not None and self.segments.tired and self.segments.breaks(self.budget_bytes):
            self._give_up(self.segments.spare_bytes, f"{1 + self.replanned} plans were made")

    @property
    def broken(self) -> tuple[bool, bool]:
        """Whether the plan took more than the budget of bytes, or of segments, and may be made again."""
        in_bytes = self._corrected < MOST_CORRECTIONS and self._passes_bytes > self.budget_bytes
        return in_bytes, self.segments.breaks(self.budget_bytes)

    def correct(self, in_bytes: bool, in_segments: bool) -> bool:
        """Decide again, with less, where the plan took more than the budget, here or on a rank that decides with us."""
        if not in_bytes and not in_segments:
            return False
        mine, took, last = self.broken, self._passes_bytes, 0
        if in_bytes:
            self.plans.beyond_bytes += max(0, took - self.plans.promised_bytes) if mine[0] else 0
            least = int(LEAST_LEFT * self.budget_bytes)
            self.left_bytes = least << (self._corrected - 1) if self._corrected else 0
            self._corrected += 1
            self._tried.clear()
        elif mine[1]:
            if self._together is None and self._broke_segments():
                return True
            last = self.segments.spare_bytes
            self.segments.leave(self.budget_bytes, took)
        self.replanned += 1
        self._decide_again(last)
        return True

    def _broke_segments(self) -> bool:
        """Whether it is decided how to go on, as this was the last plan that is made."""
        segments, plans = self.segments, self.plans
        self._tried.append(_Tried(segments.spare_bytes, segments.judged_bytes, plans.cost, plans.keep()))
        if segments.tired:
            self._go_back(f"{1 + self.replanned} plans were made")
        return segments.tired

    def _go_back(self, why: str) -> None:
        """From here on train by the plan whose segments took least; `why` none kept the budget."""
        best = min(self._tried, key=lambda one: one.took_bytes)
        self.plans.go_back(best.plan)
        self.segments.spare_bytes, self._foreseen = best.spare_bytes, best.foreseen
        self.begin_plan()
        self._give_up(best.spare_bytes, why, best.took_bytes)

    def _give_up(self, spare_bytes: int, why: str, took_bytes: int | None = None) -> None:
        """Train on beyond the budget in segments, and say so."""
        took = self.segments.judged_bytes if took_bytes is None else took_bytes
        self.segments.warn(self.budget_bytes, took, why)
        self.segments.stop(spare_bytes)

    def _decide_again(self, spare_bytes: int = 0) -> None:
        """Segments alone end no training: what no plan leaves them, they take beyond the budget.

        A plan that left them `spare_bytes` took too much.
        """
        took, wanted, self._foreseen = self.segments.judged_bytes, self.segments.spare_bytes, None
        self.begin_plan()
        if self._together is not None:
            try:
                self.decide()
            except InfeasibleBudget as error:
                if not self._together.any(wanted > 0)[0]:
                    raise
                self._give_up(0, str(error), took)
                self.decide()
        elif not wanted:
            self.decide()
        elif not self._decide_between(spare_bytes):
            self._leave_most(took)

    def _leave_most(self, took_bytes: int) -> None:
        """Try the plan of the fewest bytes, or go back to the one whose segments took least."""
        error = self._refused
        if error is not None and self.segments.leave_all_but_least(self.budget_bytes, error) and self._decides():
            return
        why = "plans for less are the same" if error is None else str(error)
        if self._tried:
            self._go_back(why)
            return
        self.segments.spare_bytes = 0
        self.decide()  # raises where the bytes in use are too many
        if took_bytes > self.budget_bytes:
            self._give_up(0, why, took_bytes)

    @property
    def _together(self) -> Together | None:
        """The ranks that decide with this one."""
        return None if self.plans.joint is None else self.plans.joint.together
