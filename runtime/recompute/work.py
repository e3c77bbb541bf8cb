"""What a plan of a whole step does before the backward pass of each block: by tapes' nodes, blocks and waits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from runtime.recompute.moves import Move, Mover, Region
from runtime.recompute.tape import Tape


@dataclass(frozen=True)
class Deed:
    """Nodes of a block's tape that run again, or whose results are let go.

    The results `but`, each as its node and its place in `Node.made`, are there or not as before.
    """

    does: Literal["replay", "drop"]
    block: int
    nodes: tuple[int, ...]
    but: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Work:
    """`before` the backward pass of one block, in order; and what is done in its waits, by their number.

    `forward`: what moves in the block's forward pass, by the node before which it does (-1: before the block is called;
    one more than the last: when it has returned).
    `behind`: what moves behind the last block, in order, each once the program has begun so many operators; `within`:
    the same within the block's backward pass. `gathers`: copies to the host that gather take memory, and come behind
    what moves before the same node.
    """

    before: tuple[Deed | Move, ...] = ()
    in_waits: Mapping[int, tuple[Deed | Move, ...]] = field(default_factory=dict)
    forward: Mapping[int, tuple[Move, ...]] = field(default_factory=dict)
    behind: tuple[tuple[int, tuple[Move, ...]], ...] = ()
    within: tuple[tuple[int, tuple[Move, ...]], ...] = ()
    gathers: bool = False

    @property
    def moves(self) -> bool:
        """Whether anything leaves or returns."""
        return bool(self.forward or self.behind or self.within) or any(
            isinstance(one, Move) for one in self._backward()
        )

    @property
    def replays(self) -> int:
        """How many nodes it runs again."""
        return sum(len(one.nodes) for one in self._backward() if isinstance(one, Deed) and one.does == "replay")

    def _backward(self) -> list[Deed | Move]:
        return [*self.before, *(one for deeds in self.in_waits.values() for one in deeds)]


InWait = Callable[[int], None]
"""Does what stands in the wait of that number."""


def carry_out(work: Work, regions: Mapping[int, Region], mover: Mover | None = None) -> InWait | None:
    """Do what stands before a block's backward pass, and say who does what its waits do; None: they do nothing.

    `regions` are the pass's, by block.
    """
    _do(work.before, regions, mover)
    return partial(_do_in, work.in_waits, regions, mover) if work.in_waits else None


def _do_in(
    in_waits: Mapping[int, Sequence[Deed | Move]], regions: Mapping[int, Region], mover: Mover | None, wait: int
) -> None:
    _do(in_waits.get(wait, ()), regions, mover)


def _do(deeds: Sequence[Deed | Move], regions: Mapping[int, Region], mover: Mover | None) -> None:
    """In order."""
    for deed in deeds:
        if isinstance(deed, Move):
            assert mover is not None
            mover.carry_out(deed, regions)
            continue
        region = regions.get(deed.block)
        tape = None if region is None else region.tape
        nodes = [] if tape is None else _known(deed, tape)
        if tape is None or not nodes:
            continue
        if deed.does == "replay":
            tape.replay(nodes, deed.but)
        else:
            tape.drop(nodes, deed.but)


def _known(deed: Deed, tape: Tape) -> list[int]:
    """The nodes that the tape has as the plan knew them: from the first other operator on all is stored."""
    end = len(tape) if tape.diverged_at is None else tape.diverged_at
    return [node for node in deed.nodes if node < end]
