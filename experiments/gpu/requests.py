"""Requests that show an allocator's rules one after the other: sizes, pools, splitting, merging, streams, limits."""

import random
from collections.abc import Callable, Mapping

from solvers.timeline.segments import Event

KIB, MIB = 1 << 10, 1 << 20
SEED, STEPS = 7, 400


USED = -1
"""In place of bytes: that stream, beside the block's own, uses the block (`record_stream`); the host waits for it."""

Script = tuple[list[Event], int | None]
"""Events, and the limit that the allocator is given, in bytes of segments."""


def rounding() -> Script:
    """Sizes beside every boundary of the rules, each alone, then all of them at once."""
    edges = (512, 1 * KIB, 512 * KIB, MIB, 2 * MIB, 10 * MIB, 20 * MIB, 32 * MIB)
    sizes = sorted({max(edge + by, 1) for edge in edges for by in (-512, -1, 0, 1, 512)})
    alone = [event for number, size in enumerate(sizes) for event in (Event(number, size), Event(number, 0))]
    first = len(sizes)
    together = [Event(first + number, size) for number, size in enumerate(sizes)]
    return [*alone, *together], None


def small_pool() -> Script:
    """Several small blocks in one segment; every second is freed, and the gaps are used again, best fit first."""
    sizes = [(1 + number % 7) * 96 * KIB for number in range(24)]
    events = [Event(number, size) for number, size in enumerate(sizes)]
    events += [Event(number, 0) for number in range(0, 24, 2)]
    events += [Event(24 + number, 90 * KIB * (1 + number % 5)) for number in range(12)]
    return events, None


def splitting() -> Script:
    """Large blocks that leave more than 1 MiB, less, or nothing of their segment, and what then fits into the rest."""
    sizes = [3 * MIB, 7 * MIB, 9 * MIB, 19 * MIB, 21 * MIB, 40 * MIB]
    events = [Event(number, size) for number, size in enumerate(sizes)]
    events += [Event(1, 0), Event(5, 0)]
    rest = [Event(6, 39 * MIB), Event(7, 6 * MIB + 512), Event(8, MIB + 1), Event(9, 38 * MIB), Event(10, 2 * MIB)]
    return [*events, *rest], None


def merging() -> Script:
    """Neighbours are freed in several orders, and a request for all of them together follows."""
    events: list[Event] = []
    for turn, order in enumerate(([0, 1, 2], [2, 1, 0], [0, 2, 1], [1, 0, 2])):
        first = 10 * turn
        events += [Event(first + number, 5 * MIB) for number in range(3)]
        events += [Event(first + number, 0) for number in order]
        events += [Event(first + 5, 15 * MIB), Event(first + 5, 0)]
    return events, None


def streams() -> Script:
    """What one stream has freed is not another's."""
    sizes = (300 * KIB, 4 * MIB, 30 * MIB)
    events: list[Event] = []
    for turn in range(4):
        stream, first = turn % 3, 10 * turn
        events += [Event(first + number, size, stream) for number, size in enumerate(sizes)]
        events += [Event(first + number, 0, stream) for number in range(2)]
    return events, None


def record_stream() -> Script:
    """Freed blocks that another stream has used, and what is given of them, first to another stream, then their own."""
    sizes = (300 * KIB, 4 * MIB, 30 * MIB)
    events: list[Event] = []
    for turn in range(3):
        first = 20 * turn
        events += [Event(first + number, size, turn % 2) for number, size in enumerate(sizes)]
        events += [Event(first + number, USED, 2) for number in range(3)] + [Event(first + 2, USED, 3)]
        events += [Event(first + number, 0, turn % 2) for number in range(3)]
        events += [Event(first + 3 + number, size, 2) for number, size in enumerate(sizes)]
        events += [Event(first + 6 + number, size - 512, turn % 2) for number, size in enumerate(sizes)]
        events += [Event(first + 5, USED, turn % 2), Event(first + 5, 0, 2), Event(first + 7, 0, turn % 2)]
    return events, None


def retry() -> Script:
    """Cached segments fill the limit; a request that none of them serves has them given back, and is served."""
    events = [Event(number, 30 * MIB) for number in range(6)]
    events += [Event(number, 0) for number in range(5)]
    return [*events, Event(6, 100 * MIB), Event(7, 30 * MIB)], 200 * MIB


def refusal() -> Script:
    """More than the limit, though half of what is held is free: no segment of it is."""
    events = [Event(number, 5 * MIB) for number in range(16)]
    events += [Event(number, 0) for number in range(0, 16, 2)]
    return [*events, Event(16, 50 * MIB)], 100 * MIB


def shuffled() -> Script:
    """Sizes of all orders come and go at random, always the same way."""
    chance = random.Random(SEED)
    events: list[Event] = []
    live: list[tuple[int, int]] = []
    for number in range(STEPS):
        if live and chance.random() < 0.45:
            block, stream = live.pop(chance.randrange(len(live)))
            events.append(Event(block, 0, stream))
        else:
            stream = chance.choice((0, 0, 0, 1))
            events.append(Event(number, int(2 ** chance.uniform(8, 26)), stream))
            live.append((number, stream))
    return events, None


SCRIPTS: Mapping[str, Callable[[], Script]] = {
    script.__name__: script
    for script in (
        rounding,
        small_pool,
        splitting,
        merging,
        streams,
        record_stream,
        retry,
        refusal,
        shuffled,
    )
}
"""All of them by name."""
