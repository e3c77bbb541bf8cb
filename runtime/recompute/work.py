"""What a plan of a whole step does before the backward pass of each block: by tapes' nodes, blocks and waits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from runtime.recompute.moves import Move, Mover, Region
from runtime.recompute.tape import Tape


@dataclass(frozen=True)
class Deed:
    """Nodes of a block's tape that run again, or whose results are let go."""

    does: Literal["replay", "drop"]
    block: int
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class Work:
    """`before` the backward pass of one block, in order; and what runs again, by block, in its waits.

    `forward`: what moves in the block's forward pass, by the node before which it does (-1: before the block is called;
    one more than the last: when it has returned).
    `behind`: what moves behind the last block, once the program has begun so many operators.
    """

    before: tuple[Deed | Move, ...] = ()
    in_waits: Mapping[int, tuple[Deed, ...]] = field(default_factory=dict)
    forward: Mapping[int, tuple[Move, ...]] = field(default_factory=dict)
    behind: tuple[int, tuple[Move, ...]] = (0, ())

    @property
    def moves(self) -> bool:
        """Whether anything leaves or returns."""
        return bool(self.forward) or bool(self.behind[1]) or any(isinstance(one, Move) for one in self.before)

    @property
    def replays(self) -> int:
        """How many nodes it runs again."""
        before = [deed for deed in self.before if isinstance(deed, Deed)]
        deeds = [*before, *(deed for deeds in self.in_waits.values() for deed in deeds)]
        return sum(len(deed.nodes) for deed in deeds if deed.does == "replay")


Windows = list[list[tuple[Tape, list[int]]]]
"""What each of the next waits runs again."""


def carry_out(work: Work, regions: Mapping[int, Region], mover: Mover | None = None) -> Windows:
    """Do what stands before a block's backward pass, and say what its waits do. `regions` are the pass's, by block."""
    tapes = {block: one.tape for block, one in regions.items() if one.tape is not None}
    for deed in work.before:
        if isinstance(deed, Move):
            assert mover is not None
            mover.carry_out(deed, regions)
            continue
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
