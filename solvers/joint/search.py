"""Local search over choices: take back what there is room for, take back some at random and fill again."""

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from solvers.joint.answers import Incumbent
from solvers.joint.choice import Choice, Prices, fill, levels, spans
from solvers.joint.draft import kept_of
from solvers.joint.given import Given
from solvers.joint.greedy import Hiding, link_prices
from solvers.joint.guided import relaxed_prices
from solvers.joint.moment import Proof
from solvers.joint.swaps import choice_of, timed
from solvers.recompute.graph.replay import useful

SHARES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
"""How much of a choice is taken back at once."""
LINKS = (0.5, 0.65, 0.8, 0.9, 0.95, 1.0, 1.0, 1.05)
"""How much of the link's time a refill counts on."""


SHOWN = (1.0, 0.5, 0.2, 0.0)
"""What is left of the time of ops that communication could hide, in a refill's prices."""
SIZES, DEAR = 0.25, 1e3
"""How often all swaps of one size are taken back, and by how much these are dearer then."""


class Search:
    """Rounds from the best choice so far; each draws how much to take back, and at which prices to fill again."""

    def __init__(self, given: Given, best: Incumbent, proof: Proof | None, source: random.Random) -> None:
        self.given, self.best, self.proof, self.source = given, best, proof, source
        self.hiding = Hiding(given, best.over)
        self.tightened: int | None = None

    def round(self) -> None:
        """One try; the best so far is tightened before anything else."""
        if self.best.draft is None or self.best.objective is None:
            return
        if self.tightened != self.best.objective:
            choice = tightened(self.given, choice_of(self.best.draft), self.best.over)
            self.best.offer_hidden(choice, self.best.by)
            self.tightened = self.best.objective
            return
        choice, prices = choice_of(self.best.draft), self._prices()
        if any(self.given.hideable):
            prices = replace(prices, shown=self.source.choice((1.0, 1.0, 1.0, *SHOWN)))
        if self.source.random() < SIZES and choice.away:
            prices = self._without_a_size(choice, prices)
        else:
            choice = self._loosened(choice)
        filled = fill(self.given, choice, prices, self.best.over)
        if filled is not None:
            self.best.offer_hidden(tightened(self.given, filled, self.best.over), "search")

    def _without_a_size(self, choice: Choice, prices: Prices) -> Prices:
        """Some or all swapped outputs of one size stay, at prices that keep them from leaving again."""
        size, source = self.given.graph.size, self.source
        chosen = size[source.choice(sorted(choice.away))[0]]
        share = source.choice((0.2, 0.5, 1.0))
        back = {gap for gap in sorted(choice.away) if size[gap[0]] == chosen and source.random() < share}
        choice.away -= back

        def swap(i: int, first: int, last: int) -> float:
            dear = DEAR if (i, first) in back else 1.0
            return dear * max(prices.swap(i, first, last), self.given.out_time[i] * (dear > 1))

        return replace(prices, swap=swap)

    def _loosened(self, choice: Choice) -> Choice:
        """Without a random share of what it does: of its swaps, of its recomputations, or of what lies together."""
        share, source = self.source.choice(SHARES), self.source
        decided = [(t, i, True) for t, run in enumerate(choice.again) for i in sorted(run)]
        decided += [(a, i, False) for i, a in sorted(choice.away)]
        kind = source.choice(("any", "again", "away", "near"))
        if kind == "near":
            decided.sort()
            width = max(1, round(share * len(decided)))
            start = source.randrange(max(1, len(decided) - width + 1))
            taken = decided[start : start + width]
        else:
            taken = [d for d in decided if source.random() < share and (kind == "any" or d[2] == (kind == "again"))]
        for t, i, again in taken:
            if again:
                choice.again[t].discard(i)
            else:
                choice.away.discard((i, t))
        return choice

    def _prices(self) -> Prices:
        if self.proof is not None and self.source.random() < 0.5:
            return relaxed_prices(self.given, self.proof, lambda: self.source.uniform(0.5, 1.5))
        source, early = self.source, self.source.random() < 0.3
        noise = (lambda: 1.0) if source.random() < 0.3 else (lambda: source.uniform(0.5, 1.5))
        hidden = self.hiding.swaps(source.choice(LINKS), early, source.random() < 0.5, noise)
        return link_prices(self.given, hidden, source.choice((0.3, 1.0, 2.0)), source)


def tightened(given: Given, choice: Choice, stop: Callable[[], bool] = lambda: False) -> Choice:
    """Without recomputations that there is room to do without, the longest first; swaps where waits cost, likewise."""
    choice = Choice(useful(given.graph, choice.again), set(choice.away))
    order = sorted(((given.time[i], t, i) for t, run in enumerate(choice.again) for i in run), reverse=True)
    kept = kept_of(given, choice.again)
    slack = given.budget - levels(given, kept, spans(kept, choice.away))
    for _, t, i in order:
        if stop():
            return choice
        before = max((s for s in kept.touched[i] if s < t), default=None)
        if i not in choice.again[t] or before is None or _least(slack, before, t) < given.graph.size[i]:
            continue
        trial = choice.copy()
        trial.again[t].discard(i)
        trial.again = useful(given.graph, trial.again)
        found = kept_of(given, trial.again)
        free = given.budget - levels(given, found, spans(found, trial.away))
        if found.fault is None and free.min() >= 0:
            choice, kept, slack = trial, found, free
    return _brought_back(given, choice)


def _brought_back(given: Given, choice: Choice) -> Choice:
    """Without swaps that there is room to do without, the largest first, if the step waits less then.

    It may wait longer: what is leaving needs room, too.
    """
    kept, before = kept_of(given, choice.again), timed(given, choice)[1].objective_us
    if before <= given.whole_us(sum(kept.ticks)):
        return choice
    found, gaps = choice.copy(), spans(kept, choice.away)
    slack = given.budget - levels(given, kept, gaps)
    for op, first, last in sorted(gaps, key=lambda gap: -given.graph.size[gap[0]]):
        if _least(slack, first, last) >= given.graph.size[op]:
            found.away.discard((op, first))
            slack[first + 1 : last] -= given.graph.size[op]
    return found if timed(given, found)[1].objective_us <= before else choice


def _least(slack: np.ndarray, first: int, last: int) -> int:
    """The least room strictly between two stages."""
    return int(slack[first + 1 : last].min(initial=2**62))
