"""What a plan of a whole step does before the backward pass of each block: by tapes' nodes, blocks and waits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from runtime.recompute.tape import Tape


@dataclass(frozen=True)
class Deed:
    """Nodes of a block's tape that run again, or whose results are let go."""

    does: Literal["replay", "drop"]
    block: int
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class Work:
    """`before` the backward pass of one block, in order; and what runs again, by block, in its waits."""

    before: tuple[Deed, ...] = ()
    in_waits: Mapping[int, tuple[Deed, ...]] = field(default_factory=dict)

    @property
    def replays(self) -> int:
        """How many nodes it runs again."""
        deeds = [*self.before, *(deed for deeds in self.in_waits.values() for deed in deeds)]
        return sum(len(deed.nodes) for deed in deeds if deed.does == "replay")


Windows = list[list[tuple[Tape, list[int]]]]
"""What each of the next waits runs again."""


def carry_out(work: Work, tapes: Mapping[int, Tape]) -> Windows:
    """Do what stands before a block's backward pass, and say what its waits do. `tapes` are the pass's, by block."""
    for deed in work.before:
        nodes = _known(deed, tapes)
        if not nodes:
            continue
        if deed.does == "replay":
            tapes[deed.block].replay(nodes)
        else:
            tapes[deed.block].drop(nodes)
    return [_window(work.in_waits.get(wait, ()), tapes) for wait in range(max(work.in_waits, default=-1) + 1)]


def _window(deeds: Sequence[Deed], tapes: Mapping[int, Tape]) -> list[tuple[Tape, list[int]]]:
    found = [(tapes[deed.block], _known(deed, tapes)) for deed in deeds if deed.block in tapes]
    return [(tape, nodes) for tape, nodes in found if nodes]


def _known(deed: Deed, tapes: Mapping[int, Tape]) -> list[int]:
    """The nodes that the tape has as the plan knew them: from the first other operator on all is stored."""
    tape = tapes.get(deed.block)
    if tape is None:
        return []
    end = len(tape) if tape.diverged_at is None else tape.diverged_at
    return [node for node in deed.nodes if node < end]
