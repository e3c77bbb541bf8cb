"""All interleaved layouts of a problem at once: their policies' reach and their exact activation memory, as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solvers.ir.fields import LARGEST
from solvers.ir.layout import LayoutProblem
from solvers.layout.interleaved import most_swapped

Array = npt.NDArray[np.int64]

MOST = 1 << 26
"""The most combinations of counts (persistent chunks × swapped × checkpointed blocks); of more, evenly spread ones."""
MOST_CELLS = 1 << 22
"""The most (counts of swapped blocks × blocks), likewise."""


def array(values: object) -> Array:
    """The values as 64-bit integers."""
    return np.asarray(values, dtype=np.int64)


def sums(values: Array) -> Array:
    """Σ of the values before each place of the last axis, and of all."""
    found = np.zeros((*values.shape[:-1], values.shape[-1] + 1), dtype=np.int64)
    np.cumsum(values, axis=-1, out=found[..., 1:])
    return found


def spread(most: int, count: int) -> Array:
    """0…most; `count` of them, evenly spread with both ends, where those are more (2 at least)."""
    if most < count:
        return np.arange(most + 1, dtype=np.int64)
    return np.unique(np.linspace(0, most, max(2, count)).round().astype(np.int64))


def shares(sizes: Sequence[int], most: int) -> list[int]:
    """How many of each of these to take, so that their product is `most` at most: all of those that are few."""
    taken = list(sizes)
    left = most
    for rank, place in enumerate(sorted(range(len(sizes)), key=lambda place: sizes[place])):
        taken[place] = min(sizes[place], int(left ** (1 / (len(sizes) - rank)) + 1e-9))
        left //= max(1, taken[place])
    return taken


@dataclass(frozen=True)
class Layouts:
    """A table of layouts, a row for each count of swapped blocks, a column for each of checkpointed ones.

    `swap` and `checkpoint` are the counts; `valid` says which cells have blocks enough. By cell: `peak_bytes` of
    activations; `again_end`, the block after the last checkpointed one; `again_swapped`, how many swapped blocks stand
    before it. By row: `swapped_bytes`; `moving_end`, the block after the last one during which activations move.
    """

    swap: Array
    checkpoint: Array
    valid: npt.NDArray[np.bool_]
    peak_bytes: Array
    again_end: Array
    again_swapped: Array
    swapped_bytes: Array
    moving_end: Array


def swap_places(problem: LayoutProblem) -> Array:
    """The blocks that the layout can swap, in the order in which it does: every `interval`-th that has a choice.

    Also those so late that their bytes come back before they could have left: they free nothing, but another block is
    then one of the first to be checkpointed.
    """
    return array([number for number, block in enumerate(problem.blocks) if block.choice][:: problem.interval])


def counts(problem: LayoutProblem) -> tuple[Array, Array, Array]:
    """Which counts of persistent chunks, swapped and checkpointed blocks are examined: all, if not too many."""
    free, blocks = sum(block.choice for block in problem.blocks), len(problem.blocks)
    most = (len(problem.chunks), most_swapped(free, problem.interval), free)
    chunks, swap, checkpoint = (each + 1 for each in most)
    taken = shares([chunks, min(swap, MOST_CELLS // blocks), checkpoint], MOST)
    persist, swapped, again = (spread(each, count) for each, count in zip(most, taken, strict=True))
    return persist, swapped, again


def left_out(problem: LayoutProblem) -> str | None:
    """A sentence on the counts that are not examined; None where all are."""
    what = ("persistent chunks", "swapped blocks", "checkpointed blocks")
    pairs = zip(what, counts(problem), strict=True)
    few = [f"{len(tried)} of {tried[-1] + 1} counts of {name}" for name, tried in pairs if len(tried) <= tried[-1]]
    return f"evenly spread, {', '.join(few)} were tried" if few else None


def all_layouts(problem: LayoutProblem) -> Layouts:
    """Every (swap, checkpoint) of the paper's space, or an even spread where there are too many."""
    free = array([number for number, block in enumerate(problem.blocks) if block.choice])
    places = swap_places(problem)
    _, swap, checkpoint = counts(problem)
    valid = swap[:, None] + checkpoint[None, :] <= len(free)
    again_end, again_swapped = _reach(free, problem.interval, swap[:, None], checkpoint[None, :], valid)
    size = array([block.activation_bytes for block in problem.blocks])
    return Layouts(
        swap=swap,
        checkpoint=checkpoint,
        valid=valid,
        peak_bytes=np.where(valid, _peaks(problem, places, swap, again_end), 0),
        again_end=again_end,
        again_swapped=again_swapped,
        swapped_bytes=sums(size[places])[swap],
        moving_end=np.minimum(np.concatenate(([0], places + problem.interval + 1)), len(size))[swap],
    )


def _reach(
    free: Array, interval: int, swap: Array, checkpoint: Array, valid: npt.NDArray[np.bool_]
) -> tuple[Array, Array]:
    """The block after the last checkpointed one, and how many swapped ones stand before it.

    Of each `interval` places the first is swapped, `swap` times over; from then on all can be checkpointed.
    """
    others = max(1, interval - 1)
    among = (checkpoint - 1) // others * interval + 1 + (checkpoint - 1) % others
    last = np.where(checkpoint <= swap * (interval - 1), among, checkpoint + swap - 1)
    some = valid & (checkpoint > 0)
    last = np.where(some, last, 0)
    end = np.where(some, free[last] + 1 if len(free) else 0, 0)
    return end, np.where(some, np.minimum(swap, last // interval + 1), 0)


def _peaks(problem: LayoutProblem, places: Array, swap: Array, again_end: Array) -> Array:
    """The exact activation peak of every layout (README of solvers/check, layout, device memory).

    Of a layout the blocks before `again_end` hold what they hold if all are checkpointed, the others what they hold if
    none is, less what the former save: the most of either is a running maximum.
    """
    blocks = problem.blocks
    size, entry = array([b.activation_bytes for b in blocks]), array([b.input_bytes for b in blocks])
    forward = array([b.forward_transient_bytes for b in blocks])
    backward = size + array([b.backward_transient_bytes for b in blocks])
    turn = np.full(len(blocks), len(places), dtype=np.int64)
    turn[places] = np.arange(len(places))
    swapped = turn < swap[:, None]
    left = sums(np.where(swapped, size, 0))[:, np.maximum(0, np.arange(len(blocks)) - problem.interval)]
    stays = np.where(~swapped & np.array([block.choice for block in blocks]), entry, size)
    again, kept = sums(stays), sums(np.broadcast_to(size, swapped.shape))
    first = np.maximum.accumulate(again[:, :-1] - left + np.maximum(stays + forward, backward), axis=1)
    others = np.flip(kept[:, :-1] - left + np.maximum(size + forward, backward), axis=1)
    last = np.flip(np.maximum.accumulate(others, axis=1), axis=1)
    none = np.full((len(swap), 1), -LARGEST)
    rows = np.arange(len(swap))[:, None]
    rest = np.hstack([last, none])[rows, again_end] + (again - kept)[rows, again_end]
    return array(np.maximum(np.hstack([none, first])[rows, again_end], rest))
