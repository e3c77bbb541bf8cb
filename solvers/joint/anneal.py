"""Simulated annealing: one decision after another, worse ones taken at first, too, so that better ones come in reach.

Thousands of choices a second are measured by `Lanes`; whoever gets the best of them measures it again. Where the native
extension was built (csrc/joint), the whole search runs there, step for step the same, in a small part of the time.
"""

import math
import random
from collections.abc import Callable, Iterator

from solvers.joint.choice import Choice, Shadow
from solvers.joint.draft import Away, Draft
from solvers.joint.given import Given
from solvers.joint.lanes import FAULT, Lanes
from solvers.joint.moves import Moves
from solvers.joint.patterns import Patterns
from solvers.joint.state import State
from solvers.native import extension

CHECKED = 500
"""After how many steps it is asked whether to stop, and the best draft since is told."""
COOLED = 50.0
"""How many times colder the last step is than the first one."""
PATTERNS = 0.15
"""The share of steps that change many decisions at once, where any do."""
SLOW = "the native search is not built, Python's takes some 20 times as long: install a C++ compiler, run `make build`"
"""Said where Python searches."""
NEVER = 2**62
"""What the extension has for `FAULT`: it counts in 64 bits."""
VERSION = 3
"""Of what `Random.getstate` tells: 624 words and the place of the next one."""


class Annealing:
    """From one choice on. `now`, `best`: ticks of the choice at hand and of `draft`, the best; `FAULT` if not valid.

    With a `shadow`, `now` is the time that the choice takes plus what it owes, so that using less of the link and of
    memory is progress even where the step ends no sooner.
    """

    def __init__(
        self,
        given: Given,
        choice: Choice,
        source: random.Random,
        share: float = PATTERNS,
        shadow: Shadow | None = None,
    ) -> None:
        self.source, self.share = source, share
        self.state = State(given, choice, shadow)
        self.lanes = Lanes(self.state)
        self.moves = Moves(self.state, source)
        self.patterns = Patterns(self.moves, source)
        self.now = self.lanes.ticks()
        if self.now < FAULT:  # once more, now that the stages' times are known
            self.lanes.kept()
            self.now = self.lanes.ticks()
            self.lanes.kept()
        self.best, self.draft = self.now, self.lanes.draft()
        if self.now < FAULT:
            self.now += self.state.owed

    def drafts(self, steps: int, hot: float, stop: Callable[[], bool]) -> Iterator[Draft]:
        """Better drafts as they are found, `hot` being the ticks that a step may lose at first, one time in e."""
        told = self.best
        for first in range(0, steps, CHECKED):
            if self.best < told:
                told = self.best
                yield self.draft
            if stop():
                return
            self._run(first, min(first + CHECKED, steps), steps, hot)
        if self.best < told:
            yield self.draft

    def _run(self, first: int, last: int, steps: int, hot: float) -> None:
        """Steps `first` to `last` - 1 of so many."""
        for step in range(first, last):
            warmth = hot * COOLED ** (-step / steps)
            self._step(self.now - int(warmth * math.log(1.0 - self.source.random())))

    def _step(self, most: int) -> None:
        """One change, taken back where the step's time and what the choice owes are then more than `most`."""
        self.state.begin()
        many = self.share and self.source.random() < self.share
        changed = self.patterns.any() if many else self.moves.any()
        took = self.lanes.ticks(most - self.state.owed) if changed else FAULT
        if took == FAULT:
            self.state.undo()
            return
        self.now = took + self.state.owed
        self.lanes.kept()
        self.moves.refresh()
        if took < self.best:
            self.best, self.draft = took, self.lanes.draft()


NATIVE = extension("solvers.joint._annealing")


class Native(Annealing):
    """The same by the native extension."""

    def __init__(
        self,
        given: Given,
        choice: Choice,
        source: random.Random,
        share: float = PATTERNS,
        shadow: Shadow | None = None,
    ) -> None:
        assert NATIVE is not None
        owed = shadow or Shadow(0, [0] * len(given), 0.0)
        again = [sorted(run) for run in choice.again]
        self.source = source
        away = [(i, a, choice.waits.get((i, a), a)) for i, a in sorted(choice.away)]
        self._native = NATIVE.Annealing(given, again, away, source.getstate()[1], share, owed)
        self._told()

    @property
    def draft(self) -> Draft:  # type: ignore[override]
        """The best, with its swap-ins; entries in the order of the lanes."""
        again, issued = self._native.draft()
        issues = sorted((read, a, i, behind, at) for i, a, behind, read, at in issued)
        return Draft([set(run) for run in again], tuple(Away(i, behind, at) for _, _, i, behind, at in issues))

    def _run(self, first: int, last: int, steps: int, hot: float) -> None:
        self._native.run(first, last, steps, hot, COOLED)
        self._told()

    def _told(self) -> None:
        """What the extension has come to, so that `source` goes on where it stopped."""
        self.source.setstate((VERSION, tuple(self._native.random()), None))
        self.now, self.best = (FAULT if ticks >= NEVER else ticks for ticks in (self._native.now, self._native.best))


def annealing_of(
    given: Given, choice: Choice, source: random.Random, share: float = PATTERNS, shadow: Shadow | None = None
) -> Annealing:
    """By the extension, where it was built."""
    return (Annealing if NATIVE is None else Native)(given, choice, source, share, shadow)
