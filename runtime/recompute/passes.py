"""How many forward passes of the blocks there were before a backward pass, in a measured step."""

from collections.abc import Sequence

from runtime.recompute.course import Event, Happened


def passes_at_once(events: Sequence[Event], blocks: Sequence[int]) -> dict[int, int]:
    """By block the most of its calls whose backward pass was still to come; `blocks`: of which block each call was.

    A siamese network makes two of one, and so do microbatches whose losses are added. Calls that had no backward pass
    count as none.
    """
    marks = [index for _, what, index, _, _ in events if what == Happened.MARK and index >= 0]
    returned = {index // 2 for index in marks if index % 2}
    most, now = dict[int, int](), dict[int, int]()
    for call, backward in (divmod(index, 2) for index in marks):
        if call not in returned or call >= len(blocks):
            continue
        block = blocks[call]
        now[block] = now.get(block, 0) + (-1 if backward else 1)
        most[block] = max(most.get(block, 1), now[block])
    return most
