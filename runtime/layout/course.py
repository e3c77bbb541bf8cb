"""The loads of a planned step in their order, and which chunk makes way for each (formats.md 8.1 to 8.3)."""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from solvers.check.layout.buffers import Name, Pass, asking_passes, bound_to_buffers, passes_of
from solvers.ir.layout import LayoutPlan, LayoutProblem


@dataclass(frozen=True)
class Load:
    """A chunk that comes for pass `number` into the buffer of `victim`, once `freed_by` is over (None: a fresh one)."""

    number: int
    chunk: int
    victim: int | None
    freed_by: Name | None


@dataclass(frozen=True)
class Course:
    """A step as planned: its passes, forward in order and backward in reverse, and its loads in order."""

    passes: tuple[Pass, ...]
    loads: tuple[Load, ...]

    @classmethod
    def of(cls, problem: LayoutProblem, plan: LayoutPlan) -> "Course":
        """The course of a plan that has buffers enough."""
        passes = passes_of(problem, plan.persistent)
        return cls(tuple(passes), tuple(_loads(problem, passes, plan.buffers)))


def _loads(problem: LayoutProblem, passes: Sequence[Pass], buffers: int) -> list[Load]:
    asking, bound = asking_passes(problem, passes), bound_to_buffers(problem, passes)
    held: set[int] = set()
    emptied: deque[tuple[int, Name]] = deque()
    loads: list[Load] = []
    fresh = buffers
    for number, one in enumerate(passes):
        for chunk in one.asks:
            if chunk in held:
                continue
            victim, freed_by = None, None
            if fresh:
                fresh -= 1
            elif emptied:
                victim, freed_by = emptied.popleft()
            else:
                victim = _latest(held - bound[number], asking, number)
                held.remove(victim)
                freed_by = passes[asking[victim][bisect_right(asking[victim], number) - 1]].name
            held.add(chunk)
            loads.append(Load(number, chunk, victim, freed_by))
        for chunk in one.asks:
            if asking[chunk][-1] == number:
                held.remove(chunk)
                emptied.append((chunk, ("offload", chunk) if problem.chunks[chunk].trainable else one.name))
    return loads


def _latest(free: set[int], asking: Sequence[Sequence[int]], number: int) -> int:
    """The chunk that is asked for again latest; of equals the larger index."""
    return max(free, key=lambda chunk: (asking[chunk][bisect_right(asking[chunk], number)], chunk))
