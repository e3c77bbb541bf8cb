"""How many forward passes of the blocks there were before a backward pass, in a measured step."""

from collections.abc import Sequence

from runtime.recompute.course import Event, Happened


def passes_at_once(events: Sequence[Event], calls: Sequence[tuple[int, int]]) -> dict[int, float]:
    """By block the most of its calls whose backward pass was still to come, in multiples of its last one's bytes.

    `calls`: of which block each was, and how large. A siamese network makes two of one, and so do microbatches whose
    losses are added. Calls that had no backward pass count as none.
    """
    marks = [index for _, what, index, _, _ in events if what == Happened.MARK and index >= 0]
    returned = {index // 2 for index in marks if index % 2}
    most, now, last = dict[int, int](), dict[int, int](), dict[int, int]()
    for call, backward in (divmod(index, 2) for index in marks):
        if call not in returned or call >= len(calls):
            continue
        block, size = calls[call][0], max(1, calls[call][1])
        now[block] = now.get(block, 0) + (-size if backward else size)
        most[block] = max(most.get(block, 0), now[block])
        last[block] = last[block] if backward else size
    return {block: size / last[block] for block, size in most.items()}
