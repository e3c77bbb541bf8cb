"""How many forward passes of the blocks there were before a backward pass, in a measured step."""

from collections import Counter
from collections.abc import Sequence

from runtime.recompute.course import Event, Happened


def passes_at_once(events: Sequence[Event], calls: Sequence[tuple[int, int]]) -> dict[int, float]:
    """By block the most of its calls whose backward pass was still to come, in multiples of its last one's bytes.

    `calls`: of which block each was, and how large. A siamese network makes two of one, and so do microbatches whose
    losses are added. Calls that had no backward pass count until all that autograd saved of them is gone.
    """
    returned = {index // 2 for _, what, index, _, _ in events if what == Happened.MARK and index >= 0 and index % 2}
    saves = Counter(tape for tape, what, *_ in events if what == Happened.SAVE)
    most, now, last = Counter[int](), Counter[int](), dict[int, int]()
    for tape, what, index, _, _ in events:
        call, change = -1, 0
        if what == Happened.MARK and index >= 0:
            call, change = index // 2, -1 if index % 2 else 1
        elif what == Happened.UNSAVE and tape not in returned:
            saves[tape] -= 1
            call, change = tape, 0 if saves[tape] else -1
        if not change or call >= len(calls) or (call not in returned and call not in saves):
            continue
        block, size = calls[call][0], max(1, calls[call][1])
        now[block] += change * size
        most[block] = max(most[block], now[block])
        if call in returned:
            last[block] = size if change > 0 else last[block]
    return {block: most[block] / size for block, size in last.items()}
