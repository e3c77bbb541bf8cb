"""What an iteration of another size would be: policies are made for the largest of a kind, whichever was recorded.

A loop that pads its batches, packs them or routes tokens runs like operators on tensors of other sizes each time. Its
policies name operators and tensors by features, in which sizes do not count; what a size decides is how much must
leave. So the graph that they are made from is that of the largest iteration seen, whether it was recorded or not: from
two recordings of the same operators every size and time goes on in a straight line; from one, what comes and goes grows
in proportion; up to `FARTHEST` times what was recorded, as of the last batch of an epoch, of a few rows, most memory is
the model's. In smaller iterations a policy sends more away than must leave, which costs time on the link only.
"""

import math
from collections.abc import Callable, Sequence
from itertools import repeat

import msgspec

from runtime.swap.profiled import Profiled
from solvers.ir.graph import OpGraph, Tensor
from solvers.timeline.shares import STAYING

NEARLY = 0.1
"""Sizes of forward passes that differ by less tell nothing of what does not depend on them, nor a line to go on in."""
FARTHEST = 2.0
"""No recording tells of an iteration more than so many times as large."""
Line = Callable[[int, int], int]
"""What becomes of a number, given that of another recording."""


class Sizes:
    """The smallest and the largest recorded iteration of one kind."""

    def __init__(self) -> None:
        self._least: tuple[int, Profiled] | None = None
        self._most: tuple[int, Profiled] | None = None

    @property
    def most(self) -> int:
        """The size of the largest recorded iteration; 0 where there is none."""
        return 0 if self._most is None else self._most[0]

    def covers(self, size: int) -> bool:
        """Whether a smaller iteration, or one as large, and a larger one were recorded."""
        return self._least is not None and self._least[0] <= size <= self.most

    def reach(self, size: int) -> int:
        """The size nearest to this one that recordings tell of, unless that is smaller; 0 where there is none.

        Where memory comes in segments that is the largest recorded: what a larger one would ask for is not known.
        """
        if self._most is None:
            return 0
        most, profiled = self._most
        if profiled.graph.requests is not msgspec.UNSET:
            return most
        return max(most, min(size, int(FARTHEST * most)))

    def note(self, profiled: Profiled, size: int) -> None:
        """An iteration was recorded whose forward pass worked on `size` bytes."""
        if self._least is None or size < self._least[0]:
            self._least = size, profiled
        if self._most is None or size >= self._most[0]:
            self._most = size, profiled

    def at(self, size: int) -> Profiled | None:
        """The largest recorded iteration as it would be at this size, as far as that can be told (`reach`).

        None where there is none.
        """
        if self._most is None or self._least is None:
            return None
        most, profiled = self._most
        least, other = self._least
        two = least < most and alike(profiled.graph, other.graph)
        if two:
            profiled = profiled._replace(staying_bytes=_staying(profiled, other))
        size = self.reach(size)
        if size <= most:
            return profiled
        if two and most - least > NEARLY * most:
            onwards = (size - most) / (most - least)

            def line(value: int, before: int) -> int:
                return max(0, round(value + (value - before) * onwards))

            return profiled._replace(graph=stretched(profiled.graph, line, other.graph), growth=size / most)

        def grown(value: int, _: int) -> int:
            return math.ceil(value * size / most)

        return profiled._replace(graph=stretched(profiled.graph, grown, None), growth=size / most)


def alike(graph: OpGraph, other: OpGraph) -> bool:
    """Whether both have the same operators, and the same tensors but for their sizes."""
    return (
        [op.name for op in graph.ops] == [op.name for op in other.ops]
        and len(graph.tensors) == len(other.tensors)
        and all(map(_same_place, graph.tensors, other.tensors))
    )


def stretched(graph: OpGraph, line: Line, other: OpGraph | None) -> OpGraph:
    """Sizes, memory and times put through `line`; without another graph only those of what comes and goes."""
    tensors = graph.tensors if other is None else other.tensors
    ops = graph.ops if other is None else other.ops
    stay = min(graph.memory_bytes) if other is None else 0
    memory: Sequence[int] = graph.memory_bytes if other is None else other.memory_bytes
    return msgspec.structs.replace(
        graph,
        tensors=tuple(
            msgspec.structs.replace(tensor, bytes=line(tensor.bytes, before.bytes))
            if other is not None or (tensor.born is not None and tensor.kind not in STAYING)
            else tensor
            for tensor, before in zip(graph.tensors, tensors, strict=True)
        ),
        ops=tuple(
            msgspec.structs.replace(op, time_us=line(op.time_us, before.time_us))
            for op, before in zip(graph.ops, ops, strict=True)
        ),
        memory_bytes=tuple(
            least + line(here - least, before - least)
            for here, before, least in zip(graph.memory_bytes, memory, repeat(stay), strict=False)
        ),
    )


def _staying(larger: Profiled, smaller: Profiled) -> tuple[int, ...]:
    """What of each operator's memory would be left at size 0, if two recordings lie on a line.

    Each forward pass counts by itself: of two batches in one iteration the one may be larger and the other smaller. Of
    passes of nearly the same size only what no iteration goes below is known.
    """
    least = min(larger.graph.memory_bytes)
    here, before = _pass_bytes(larger), _pass_bytes(smaller)
    found = []
    for place, (most, other) in enumerate(zip(larger.graph.memory_bytes, smaller.graph.memory_bytes, strict=True)):
        share = before[place] / here[place] if here[place] else 1.0
        at_zero = (other - share * most) / (1 - share) if abs(1 - share) > NEARLY else least
        found.append(min(max(least, math.ceil(at_zero)), most))
    return tuple(found)


def _pass_bytes(profiled: Profiled) -> list[int]:
    """What the latest forward pass had worked on by each operator."""
    by_operator = [0] * len(profiled.graph.ops)
    for (_, op), sighting in profiled.sightings.items():
        by_operator[op] = sighting.pass_bytes
    latest = 0
    for op, seen in enumerate(by_operator):
        latest = by_operator[op] = seen or latest
    return by_operator


def _same_place(one: Tensor, other: Tensor) -> bool:
    return (one.id, one.born, one.uses, one.kind) == (other.id, other.born, other.uses, other.kind)
