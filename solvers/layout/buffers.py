"""Which chunks passes load, and into whose buffers: persistent chunks and buffers decide it (formats.md 8.1 to 8.3)."""

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush

from solvers.ir.layout import LayoutProblem

Loads = list[list[tuple[int, int | None, int | None]]]
"""By pass, in order: a chunk to load, the one whose buffer it takes, and after which pass that one is evicted."""


def loads_of(problem: LayoutProblem, asked: list[list[int]], persistent: frozenset[int], count: int) -> Loads:
    """What each pass must load with so many buffers; `asked`: by chunk, the passes that ask for it."""
    buffers, found = _Buffers(problem, asked, persistent, count), Loads()
    for number, block in enumerate((*problem.blocks, *reversed(problem.blocks))):
        found.append([(chunk, *buffers.take(chunk)) for chunk in buffers.missing(block.chunks)])
        buffers.end_pass(number, block.chunks)
    return found


class _Buffers:
    """Which chunks the buffers hold, pass by pass; `take` says when the buffer of a missing chunk is free."""

    def __init__(self, problem: LayoutProblem, asked: list[list[int]], persistent: frozenset[int], count: int) -> None:
        self.chunks = problem.chunks
        self.half = len(problem.blocks)
        self.asked = asked
        self.persistent = persistent
        self.unused = count
        self.held: set[int] = set()
        self.emptied: deque[int] = deque()
        self.latest: list[tuple[int, int]] = []
        self.seen = [0] * len(self.chunks)

    def missing(self, asks: Sequence[int]) -> list[int]:
        """What a pass must load, in order."""
        return [chunk for chunk in asks if chunk not in self.held and chunk not in self.persistent]

    def take(self, chunk: int) -> tuple[int | None, int | None]:
        """Hold a chunk in the buffer of another: (that chunk, the last pass that asked for it where it is evicted).

        Both are None where the buffer was never used. Of the chunks that may be evicted the one goes that is asked
        for latest, ties to the larger index; chunks of this pass and with incomplete gradients stand below them.
        """
        self.held.add(chunk)
        if self.unused:
            self.unused -= 1
            return None, None
        if self.emptied:
            return self.emptied.popleft(), None
        _, negative = heappop(self.latest)
        self.held.remove(-negative)
        return -negative, self.asked[-negative][self.seen[-negative] - 1]

    def end_pass(self, number: int, asks: Sequence[int]) -> None:
        """Empty the buffers of chunks that no later pass asks for; remember when the others are asked for again."""
        for chunk in asks:
            if chunk in self.persistent:
                continue
            self.seen[chunk] += 1
            if self.seen[chunk] == len(self.asked[chunk]):
                self.held.remove(chunk)
                self.emptied.append(chunk)
            elif number < self.half or not self.chunks[chunk].trainable:
                heappush(self.latest, (-self.asked[chunk][self.seen[chunk]], -chunk))
