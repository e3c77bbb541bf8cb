"""What a first step launches once: optimizers make their states in it, which no later step fills again."""

from collections.abc import Iterator, Sequence
from itertools import islice
from operator import itemgetter

from runtime.recompute.course import LAST, Event, Happened

Reading = Sequence[int]
"""Of a log's `launches`: a `Measured`, what other streams did meanwhile, and which stream that is about."""


def filled_once(events: Sequence[Event], readings: Sequence[Reading]) -> set[int]:
    """Behind the last pass, the readings of what fills memory that stays, as optimizers' states do in a first step.

    What was allocated behind an event and is there at a later one has kept what is in use above what it was. The most
    that is there at once stays, as far as a step begins with as many bytes more; the next kernel fills it. One for
    which the host waits counts.
    """
    marks = [(at, index) for at, (_, what, index, _, _) in enumerate(events) if what == Happened.MARK]
    ends = [at for at, index in marks if index == LAST]
    if not ends:
        return set()
    end, before = ends[-1], max(ends[:-1], default=-1)
    begun = next(at for at, index in marks if at > before)
    more_bytes = events[-1][4] - events[begun][4]
    levels = [event[4] for event in events[end:]]
    held = (len(lower) if levels[lower[-1]] - levels[lower[0]] <= more_bytes else 0 for lower in _rising(levels))
    fullest, _ = max(enumerate(held), key=itemgetter(1))
    lower = next(islice(_rising(levels), fullest, None))
    found, done = set(), 0
    for at in (end + one for one in lower[:-1]):
        filled = next((later for later in range(max(at + 1, done), len(readings)) if readings[later][1]), None)
        if filled is not None and at >= done and not readings[filled][3]:
            found.add(filled)
        done = done if filled is None else filled
    return found


def _rising(levels: Sequence[int]) -> Iterator[list[int]]:
    """For each place: the last places, up to it, of the levels below all later ones. It is always the same list."""
    lower: list[int] = []
    for at, level in enumerate(levels):
        while lower and levels[lower[-1]] >= level:
            lower.pop()
        lower.append(at)
        yield lower
