"""Parameters packed into chunks of one size in execution order, and that size by least waste (ProTrain §3.1.1, B.1)."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from solvers.ir.errors import InvalidInput
from solvers.layout.assumptions import CHUNK_RANGE_BYTES, CHUNK_STEP_BYTES, CHUNK_WASTE

ALIGNMENT_BYTES = 512
"""What allocators round sizes up to."""
DOUBLINGS = 4
"""How often the search for a chunk size may go twice as far."""


@dataclass(frozen=True)
class Parameter:
    """A parameter's bytes as they lie in a chunk, and the blocks that use it, ascending (several: it is tied)."""

    name: str
    bytes: int
    blocks: tuple[int, ...]
    trainable: bool = True


@dataclass(frozen=True)
class Chunk:
    """The parameters that travel together, as indices, with their bytes; the rest of the chunk is empty."""

    parameters: tuple[int, ...]
    bytes: int
    blocks: tuple[int, ...]
    trainable: bool


@dataclass(frozen=True)
class Packing:
    """Chunks in execution order, all of one size; `unused` are parameters of no block, which are in no chunk."""

    chunk_bytes: int
    chunks: tuple[Chunk, ...]
    unused: tuple[int, ...]


def pack(parameters: Sequence[Parameter], chunk_bytes: int) -> Packing:
    """One parameter after the other as they are first used, into the open chunk if it fits, else into a new one.

    No parameter is split. A tied one lies where it is first used. Trainable and frozen parameters have an open chunk
    each, since a chunk is one or the other. Raises `InvalidInput` where a parameter is larger than a chunk.
    """
    used = [number for number, parameter in enumerate(parameters) if parameter.blocks]
    members: list[list[int]] = []
    room: dict[bool, tuple[int, int]] = {}
    for number in sorted(used, key=lambda number: parameters[number].blocks[0]):
        one = parameters[number]
        if one.bytes > chunk_bytes:
            raise InvalidInput(
                f"parameter {one.name!r} takes {one.bytes} bytes, but a chunk only {chunk_bytes}: make chunks larger"
            )
        place, left = room.get(one.trainable, (0, -1))
        if one.bytes > left:
            place, left = len(members), chunk_bytes
            members.append([])
        members[place].append(number)
        room[one.trainable] = (place, left - one.bytes)
    unused = tuple(number for number, parameter in enumerate(parameters) if not parameter.blocks)
    return Packing(chunk_bytes, tuple(_chunk(parameters, each) for each in members), unused)


def _chunk(parameters: Sequence[Parameter], members: Sequence[int]) -> Chunk:
    blocks = {block for number in members for block in parameters[number].blocks}
    size = sum(parameters[number].bytes for number in members)
    return Chunk(tuple(members), size, tuple(sorted(blocks)), parameters[members[0]].trainable)


def best_packing(
    parameters: Sequence[Parameter],
    *,
    step_bytes: int = CHUNK_STEP_BYTES,
    range_bytes: int = CHUNK_RANGE_BYTES,
    waste: float = CHUNK_WASTE,
) -> Packing:
    """The packing that wastes least, of chunk sizes from the largest parameter to `range_bytes` more; ties: larger.

    Where even it leaves more than the part `waste` of all chunks empty, sizes up to twice as far are tried, at most
    `DOUBLINGS` times. Raises `InvalidInput` where no block uses a parameter.
    """
    sizes = [parameter.bytes for parameter in parameters if parameter.blocks]
    if not sum(sizes):
        raise InvalidInput(
            "no block uses a parameter, so there is nothing to lay out: give a model with parameters (a graph computed "
            "from a shape names none: give the shape itself)"
        )
    first, everything = (-(-size // step_bytes) for size in (max(sizes), sum(sizes)))
    streams = [_running_totals(parameters, trainable) for trainable in (True, False)]
    chosen, tried = first * step_bytes, first
    for doubling in range(DOUBLINGS + 1):
        last = min(first + (range_bytes << doubling) // step_bytes, everything)
        sizes = [steps * step_bytes for steps in (chosen // step_bytes, *range(tried, last + 1))]
        # all parameters are the same for every size, so the least waste is where the chunks take least
        taken, less = min((size * sum(_count(totals, size) for totals in streams), -size) for size in sizes)
        chosen, tried = -less, last + 1
        if taken - sum(totals[-1] for totals in streams if totals) <= waste * taken:
            break
    return pack(parameters, chosen)


def _running_totals(parameters: Sequence[Parameter], trainable: bool) -> list[int]:
    """Bytes up to each parameter that is packed into these chunks, in execution order."""
    mine = [one for one in parameters if one.blocks and one.trainable is trainable]
    return list(accumulate(one.bytes for one in sorted(mine, key=lambda one: one.blocks[0])))


def _count(totals: Sequence[int], chunk_bytes: int) -> int:
    """How many chunks parameters with these running totals fill."""
    count = place = 0
    while place < len(totals):
        start = totals[place - 1] if place else 0
        place = bisect_right(totals, start + chunk_bytes, lo=place)
        count += 1
    return count


def packed(parameters: Sequence[Parameter], chunk_bytes: int | None) -> Packing:
    """The packing into chunks of the given size, or of the best one.

    The search goes no farther beyond the largest parameter than twice its size, in 64 steps at least: models of a few
    megabytes are not to end in one chunk.
    """
    if chunk_bytes is not None:
        return pack(parameters, chunk_bytes)
    largest = max((parameter.bytes for parameter in parameters if parameter.blocks), default=0)
    step = min(CHUNK_STEP_BYTES, max(ALIGNMENT_BYTES, largest // 64 // ALIGNMENT_BYTES * ALIGNMENT_BYTES))
    return best_packing(parameters, step_bytes=step, range_bytes=min(CHUNK_RANGE_BYTES, largest))
