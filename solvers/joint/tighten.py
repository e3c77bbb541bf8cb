"""Take back what there is room for: recomputations, and swaps where the step waits less without them."""

from collections.abc import Callable

import numpy as np

from solvers.joint.choice import Choice, levels, spans
from solvers.joint.draft import kept_of
from solvers.joint.given import Given
from solvers.joint.swaps import timed
from solvers.recompute.graph.replay import useful


def tightened(given: Given, choice: Choice, stop: Callable[[], bool] = lambda: False) -> Choice:
    """Without recomputations that there is room to do without, the longest first; swaps where waits cost, likewise."""
    choice = Choice(useful(given.graph, choice.again), set(choice.away), dict(choice.waits))
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
