"""How long each part of a block's backward pass takes, between its waits for collectives.

A plan of the whole step does something in such a wait; when that is, is what the parts before it take. In the measured
step something of the block runs again in each of them, which the device's log tells.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from runtime.recompute.course import Event, Happened

Mark = int
Ran = Mapping[int, Sequence[Sequence[int]]]
"""By call: in each part of its backward pass, the nodes of its tape that ran again."""


def ran_in_parts(events: Sequence[Event]) -> Ran:
    """Of all calls of a measured step; a part more than there were waits."""
    found: dict[int, list[list[int]]] = {}
    now = -1
    for tape, what, index, _, _ in events:
        if what == Happened.MARK:
            now = index // 2 if index > 0 and index % 2 else -1
            if now >= 0:
                found[now] = [[]]
        elif now >= 0 and what == Happened.WAIT:
            found[now].append([])
        elif now >= 0 and what == Happened.RAN and tape == now:
            found[now][-1].append(index)
    return found


def parts_us(
    marks: tuple[Mark, Mark],
    waits: Sequence[tuple[Mark, Mark]],
    ran: Sequence[Sequence[int]],
    again_us: Sequence[tuple[int, float]],
    at_us: Callable[[Mark], float],
) -> tuple[float, ...]:
    """A backward pass from its first mark to its last, less its `waits` and what ran again; () where that is unknown.

    `again_us`: nodes that ran again, in order, each with its time (`Tape.again_us`). Microseconds by part.
    """
    if len(ran) != len(waits) + 1 or [one for part in ran for one in part] != [one for one, _ in again_us]:
        return ()
    begins = [marks[0], *(last for _, last in waits)]
    ends = [*(first for first, _ in waits), marks[1]]
    took = iter(again_us)
    again = [sum(us for _, us in islice(took, len(part))) for part in ran]
    return tuple(
        max(0.0, at_us(end) - at_us(begin) - less) for begin, end, less in zip(begins, ends, again, strict=True)
    )
