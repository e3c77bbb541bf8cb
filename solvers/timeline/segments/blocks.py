"""Blocks side by side in segments, and the pools in which free ones wait, by stream, size and address."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from solvers.timeline.segments.settings import LARGE_SEGMENT, SMALL_SEGMENT


class Block:
    """A range of a segment, with its neighbours in it; `mapped` is False for an expandable segment's bare addresses."""

    __slots__ = ("address", "in_use", "mapped", "next", "pool", "prev", "size", "stream")

    def __init__(self, pool: "Pool", stream: int, address: int, size: int, mapped: bool = True) -> None:
        self.pool, self.stream, self.address, self.size, self.mapped = pool, stream, address, size, mapped
        self.in_use = False
        self.prev: Block | None = None
        self.next: Block | None = None

    @property
    def is_split(self) -> bool:
        """Whether it shares its segment with other blocks."""
        return self.prev is not None or self.next is not None

    def insert_after(self, before: "Block") -> None:
        """Take the place behind `before` in its segment."""
        self.prev, self.next = before, before.next
        before.next = self
        if self.next is not None:
            self.next.prev = self


Key = tuple[int, int, Block]
"""Size, address, block: no two free blocks of a stream share size and address, so blocks are never compared."""


@dataclass
class Pool:
    """The small or the large pool: free blocks of each stream by (size, address), unmapped ranges by address."""

    small: bool
    free: dict[int, list[Key]] = field(default_factory=dict)
    unmapped: dict[int, list[tuple[int, Block]]] = field(default_factory=dict)

    @property
    def page_bytes(self) -> int:
        """The page in which its expandable segments grow."""
        return SMALL_SEGMENT if self.small else LARGE_SEGMENT

    def add(self, block: Block) -> None:
        """Let a free block wait, or an unmapped range."""
        if block.mapped:
            insort(self.free.setdefault(block.stream, []), (block.size, block.address, block))
        else:
            insort(self.unmapped.setdefault(block.stream, []), (block.address, block))

    def remove(self, block: Block) -> None:
        """Take it out, before its size or address changes."""
        if block.mapped:
            keys = self.free[block.stream]
            del keys[bisect_left(keys, (block.size, block.address))]
        else:
            ranges = self.unmapped[block.stream]
            del ranges[bisect_left(ranges, (block.address,))]

    def from_size(self, stream: int, size: int) -> Iterator[Block]:
        """Free blocks of a stream of at least `size` bytes, the smallest first, then by address."""
        keys = self.free.get(stream, [])
        return (keys[place][2] for place in range(bisect_left(keys, (size,)), len(keys)))

    def blocks(self) -> list[Block]:
        """All free blocks, by stream, size and address."""
        return [key[2] for stream in sorted(self.free) for key in self.free[stream]]

    def merge(self, block: Block, other: Block | None) -> int:
        """Let a block take in a neighbour that is free (or unmapped like itself); the bytes gained, 0 where it is not.

        `block` itself waits in no pool.
        """
        if other is None or other.in_use or other.mapped != block.mapped:
            return 0
        self.remove(other)
        if other is block.prev:
            block.address, block.prev = other.address, other.prev
            if block.prev is not None:
                block.prev.next = block
        else:
            block.next = other.next
            if block.next is not None:
                block.next.prev = block
        block.size += other.size
        return other.size
