"""Which chunks a `layout` decision loads, and into whose buffers: no times are needed (formats.md 8.1 to 8.3)."""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from solvers.ir.layout import LayoutProblem

Name = tuple[str, int]
"""A task: what is done, and the number of its block, chunk or load."""


@dataclass(frozen=True)
class Pass:
    """The forward or the backward of a block, and the chunks that it asks for."""

    do: str
    block: int
    asks: tuple[int, ...]

    @property
    def name(self) -> Name:
        """Its task on the compute lane."""
        return (self.do, self.block)


@dataclass(frozen=True)
class Miss:
    """A chunk that must be loaded for a pass, and the task whose end frees its buffer (None: it was never used)."""

    chunk: int
    freed_by: Name | None


def passes_of(problem: LayoutProblem, persistent: Sequence[int]) -> list[Pass]:
    """Forward in order, backward in reverse; persistent chunks need not be asked for."""
    always = set(persistent)
    asks = [tuple(chunk for chunk in block.chunks if chunk not in always) for block in problem.blocks]
    forward = [Pass("forward", block, chunks) for block, chunks in enumerate(asks)]
    return forward + [Pass("backward", block, asks[block]) for block in reversed(range(len(asks)))]


def asking_passes(problem: LayoutProblem, passes: Sequence[Pass]) -> list[list[int]]:
    """For each chunk the numbers of the passes that ask for it."""
    asking: list[list[int]] = [[] for _ in problem.chunks]
    for number, one in enumerate(passes):
        for chunk in one.asks:
            asking[chunk].append(number)
    return asking


def bound_to_buffers(problem: LayoutProblem, passes: Sequence[Pass]) -> list[set[int]]:
    """For each pass the chunks that must be in buffers: those asked for, and those whose gradients are incomplete."""
    bound = [set(one.asks) for one in passes]
    half = len(problem.blocks)
    for chunk, asking in enumerate(asking_passes(problem, passes)):
        if asking and problem.chunks[chunk].trainable:
            for number in range(asking[bisect_right(asking, half - 1)], asking[-1] + 1):
                bound[number].add(chunk)
    return bound


def misses_of(problem: LayoutProblem, passes: Sequence[Pass], buffers: int) -> list[list[Miss]]:
    """What each pass must load, in order; `buffers` must hold what is bound to buffers in every pass."""
    asking = asking_passes(problem, passes)
    bound = bound_to_buffers(problem, passes)
    held: set[int] = set()
    emptied: deque[Name] = deque()
    untouched = buffers
    misses: list[list[Miss]] = []
    for number, one in enumerate(passes):
        misses.append([])
        for chunk in one.asks:
            if chunk in held:
                continue
            freed_by: Name | None = None
            if untouched:
                untouched -= 1
            elif emptied:
                freed_by = emptied.popleft()
            else:
                freed_by = passes[_evict(held, bound[number], asking, number)].name
            held.add(chunk)
            misses[-1].append(Miss(chunk, freed_by))
        for chunk in one.asks:
            if asking[chunk][-1] == number:
                held.remove(chunk)
                emptied.append(("offload", chunk) if problem.chunks[chunk].trainable else one.name)
    return misses


def _evict(held: set[int], bound: set[int], asking: list[list[int]], number: int) -> int:
    """Drop the chunk that is asked for again latest (ties: the larger index); returns its last pass so far."""
    free = held - bound
    gone = max(free, key=lambda chunk: (asking[chunk][bisect_right(asking[chunk], number)], chunk))
    held.remove(gone)
    return asking[gone][bisect_right(asking[gone], number) - 1]
