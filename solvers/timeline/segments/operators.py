"""What no budget may be less than: an operator's arguments and what it takes while it runs, whatever else has left."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from solvers.ir.errors import InvalidProblem
from solvers.ir.graph import OpGraph
from solvers.timeline.segments.settings import (
    LARGE_SEGMENT,
    MOST_SMALL,
    MOST_UNSPLIT_REST,
    SEGMENT_GRANULE,
    SMALL_SEGMENT,
    SMALLEST_BLOCK,
    is_small,
    rounded,
)

LEAST_LARGE = MOST_SMALL + SMALLEST_BLOCK


class OperatorNeed(NamedTuple):
    """Bytes of segments that operator number `op` of a step cannot do with less than; 0 bytes where there is none."""

    bytes: int
    op: int


def most_needed(graph: OpGraph) -> OperatorNeed:
    """The operator of a step that needs most at once, in whole segments: a lower bound of every budget.

    Counted are its arguments, each tensor once, and the blocks that it takes itself, at the moment when these are most;
    tensors rounded as the allocator rounds them, of other blocks of the large pool the least that they may have been
    requested for (so much less, `MOST_UNSPLIT_REST`, may not have been cut off); small and large ones in segments (of a
    step recorded with expandable segments: pages) of their own. Where the blocks lie, what other segments hold, and
    what cannot leave for other reasons is left out, so that a budget above it may still be too small. Raises
    `InvalidProblem` for a graph that was not profiled where memory comes in segments.
    """
    told = graph.requests
    if told is msgspec.UNSET:
        raise InvalidProblem("the graph tells no requests: profile the step where memory comes in segments")
    sizes = {tensor.id: tensor.bytes for tensor in graph.tensors}
    given = [_Held(sizes[tensor] for tensor in set(op.inputs)) for op in graph.ops]
    exact = {block: sizes[tensor] for tensor, block in told.block_of}
    own: dict[int, _Held] = defaultdict(_Held)
    taken: dict[int, tuple[int, int]] = {}
    most = OperatorNeed(0, 0)
    for block, size, _, op in told.events:
        if size == 0:
            taker, freed = taken.pop(block, (-1, 0))
            if taker >= 0:
                own[taker].add(-freed)
        elif op >= 0:
            least = exact.get(block, size if is_small(size) else max(size - MOST_UNSPLIT_REST, LEAST_LARGE))
            taken[block] = (op, least)
            own[op].add(least)
            most = max(most, OperatorNeed(own[op].segments(given[op], expandable=told.expandable), op))
    for op, held in enumerate(given):
        most = max(most, OperatorNeed(held.segments(_Held(), expandable=told.expandable), op))
    return most


class _Held:
    """Rounded bytes of small and of large blocks."""

    def __init__(self, sizes: Iterable[int] = ()) -> None:
        self.small = self.large = 0
        for size in sizes:
            self.add(size)

    def add(self, size: int) -> None:
        """A block of so many bytes, or, where negative, one less."""
        block = rounded(abs(size))
        change = block if size > 0 else -block
        if is_small(block):
            self.small += change
        else:
            self.large += change

    def segments(self, beside: "_Held", *, expandable: bool) -> int:
        """Whole segments for these blocks and others beside them."""
        unit = LARGE_SEGMENT if expandable else SEGMENT_GRANULE
        small, large = self.small + beside.small, self.large + beside.large
        return -(-small // SMALL_SEGMENT) * SMALL_SEGMENT + -(-large // unit) * unit
