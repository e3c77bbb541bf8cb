"""How many forward passes of the blocks there were before a backward pass, in a measured step."""

import logging
from collections.abc import Sequence

from runtime.recompute.course import Event, Happened

LOG = logging.getLogger("bayplan.recompute")


def passes_at_once(events: Sequence[Event], blocks: Sequence[int]) -> int:
    """The most calls of one block whose backward pass was still to come; `blocks`: of which block each call was.

    A siamese network makes two of one, and so do microbatches whose losses are added. Calls that had no backward pass
    count as none.
    """
    marks = [index for _, what, index, _, _ in events if what == Happened.MARK and index >= 0]
    returned = {index // 2 for index in marks if index % 2}
    most, now = 0, dict[int, int]()
    for call, backward in (divmod(index, 2) for index in marks):
        if call not in returned or call >= len(blocks):
            continue
        block = blocks[call]
        now[block] = now.get(block, 0) + (-1 if backward else 1)
        most = max(most, now[block])
    return most


def warn_of_passes(at_once: int) -> None:
    """Say that plans of the whole step reckon with one forward pass only, where there are more."""
    if at_once > 1:
        LOG.warning(
            "%d forward passes of a block come before its backward pass, and plans of the whole step reckon with one: "
            "later steps may take more than the budget, or run out of memory, until they are planned again; "
            "solver='heu' reckons with all of them, where the blocks are alike",
            at_once,
        )
