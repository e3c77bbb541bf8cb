"""Simulated annealing: one decision after another, worse ones taken at first, too, so that better ones come in reach.

Thousands of choices a second are measured by `Lanes`; whoever gets the best of them measures it again.
"""

import math
import random
from collections.abc import Callable, Iterator

from solvers.joint.choice import Choice
from solvers.joint.draft import Draft
from solvers.joint.given import Given
from solvers.joint.lanes import FAULT, lanes_of
from solvers.joint.moves import Moves
from solvers.joint.patterns import Patterns
from solvers.joint.state import State

CHECKED = 50
"""After how many steps it is asked whether to stop, and the best draft since is told."""
COOLED = 50.0
"""How many times colder the last step is than the first one."""
PATTERNS = 0.15
"""The share of steps that change many decisions at once, where any do."""


class Annealing:
    """From one choice on. `now`, `best`: ticks of the choice at hand and of `draft`, the best; `FAULT` if not valid."""

    def __init__(self, given: Given, choice: Choice, source: random.Random, share: float = PATTERNS) -> None:
        self.source, self.share = source, share
        self.state = State(given, choice)
        self.lanes = lanes_of(self.state)
        self.moves = Moves(self.state, source)
        self.patterns = Patterns(self.moves, source)
        self.now = self.lanes.ticks()
        if self.now < FAULT:  # once more, now that the stages' times are known
            self.lanes.kept()
            self.now = self.lanes.ticks()
            self.lanes.kept()
        self.best, self.draft = self.now, self.lanes.draft()

    def drafts(self, steps: int, hot: float, stop: Callable[[], bool]) -> Iterator[Draft]:
        """Better drafts as they are found, `hot` being the ticks that a step may lose at first, one time in e."""
        told = self.best
        for step in range(steps):
            if step % CHECKED == 0:
                if self.best < told:
                    told = self.best
                    yield self.draft
                if stop():
                    return
            warmth = hot * COOLED ** (-step / steps)
            self._step(self.now - int(warmth * math.log(1.0 - self.source.random())))
        if self.best < told:
            yield self.draft

    def _step(self, most: int) -> None:
        """One change, taken back where the step then takes longer than `most`."""
        self.state.begin()
        many = self.share and self.source.random() < self.share
        changed = self.patterns.any() if many else self.moves.any()
        took = self.lanes.ticks(most) if changed else FAULT
        if took == FAULT:
            self.state.undo()
            return
        self.now = took
        self.lanes.kept()
        self.moves.refresh()
        if took < self.best:
            self.best, self.draft = took, self.lanes.draft()
