"""Expandable segments: one range of addresses for each stream and pool, in which pages are mapped and unmapped."""

from collections.abc import Iterator

from solvers.timeline.segments.blocks import Block, Pool
from solvers.timeline.segments.settings import LARGE_SEGMENT, SegmentSettings
from solvers.timeline.segments.statistics import Statistics

ENDLESS = 1 << 50
"""Bytes of addresses of a segment on a device without end."""


class Expandable:
    """Grows and shrinks expandable segments; the pools are the caller's."""

    def __init__(self, settings: SegmentSettings, statistics: Statistics) -> None:
        self._device, self._statistics = settings.device_bytes, statistics
        self._end = 0
        self.missing = 0
        """Bytes that the device lacked for the pages that it refused last."""

    def best(self, first: Block, others: Iterator[Block]) -> Block:
        """Of free blocks by size the first one behind which no smaller room to grow follows.

        A block counts with the bare addresses behind it: those are kept for requests that need them.
        """
        for other in others:
            if _room(other) >= _room(first):
                break
            first = other
        return first

    def grown(self, pool: Pool, size: int, stream: int) -> Block | None:
        """A free block of at least `size` bytes, taken out of its pool, pages mapped into the lowest addresses.

        None where the device has too few pages left; those that were mapped by then stay, free.
        """
        block = self._place(pool, size, stream)
        if not block.mapped and not self._map(block, min(block.size, size)):
            return None
        while block.size < size:
            bare = block.next
            assert bare is not None, "a place has enough addresses behind it"
            if not self._map(bare, min(size - block.size, bare.size)):
                return None
            block = bare  # it has taken in what was free before it
        pool.remove(block)
        return block

    def extend(self, last: Block) -> None:
        """Addresses behind the last block of a range that is there already: as many as a new range would have."""
        page = last.pool.page_bytes
        bare = Block(last.pool, last.stream, last.address + last.size, -(-self._extent() // page) * page, mapped=False)
        bare.insert_after(last)
        last.pool.add(bare)
        self._end = max(self._end, -(-(bare.address + bare.size) // LARGE_SEGMENT) * LARGE_SEGMENT)

    def _extent(self) -> int:
        return ENDLESS if self._device is None else self._device + self._device // 8

    def release(self, pool: Pool) -> None:
        """Unmap the pages of a pool that lie wholly in free blocks."""
        for block in pool.blocks():
            self._unmap(block)

    def _place(self, pool: Pool, size: int, stream: int) -> Block:
        """Where a request may grow: the lowest bare addresses with enough room, with what is free right before."""
        for _, bare in pool.unmapped.get(stream, []):
            start = bare.prev if bare.prev is not None and not bare.prev.in_use else bare
            if _has_addresses(start, size):
                return start
        page = pool.page_bytes
        block = Block(pool, stream, self._end, -(-max(self._extent(), size) // page) * page, mapped=False)
        self._end += -(-block.size // LARGE_SEGMENT) * LARGE_SEGMENT  # pages of either size begin at its multiples
        pool.add(block)
        return block

    def _map(self, block: Block, size: int) -> bool:
        """Map the pages that hold the first `size` bytes of bare addresses; all of them or none."""
        pool, page = block.pool, block.pool.page_bytes
        mapped = -(-size // page) * page
        if self._device is not None and self._statistics.reserved.now + mapped > self._device:
            self.missing = self._statistics.reserved.now + mapped - self._device
            return False
        pool.remove(block)
        block.mapped = True
        if mapped < block.size:
            rest = Block(pool, block.stream, block.address + mapped, block.size - mapped, mapped=False)
            rest.insert_after(block)
            pool.add(rest)
            block.size = mapped
        _merge_both(block)
        pool.add(block)
        self._statistics.reserved.add(mapped)
        return True

    def _unmap(self, block: Block) -> None:
        pool, page = block.pool, block.pool.page_bytes
        begin = -(-block.address // page) * page
        end = (block.address + block.size) // page * page
        if begin >= end:
            return
        pool.remove(block)
        if begin > block.address:
            before = Block(pool, block.stream, block.address, begin - block.address)
            before.prev = block.prev
            if before.prev is not None:
                before.prev.next = before
            before.next, block.prev = block, before
            pool.add(before)
        if end < block.address + block.size:
            after = Block(pool, block.stream, end, block.address + block.size - end)
            after.insert_after(block)
            pool.add(after)
        block.address, block.size, block.mapped = begin, end - begin, False
        _merge_both(block)
        if block.is_split:
            pool.add(block)
        self._statistics.reserved.add(begin - end)
        self._statistics.returned += 1


def _merge_both(block: Block) -> None:
    block.pool.merge(block, block.prev)
    block.pool.merge(block, block.next)


def _room(block: Block) -> int:
    behind = block.next
    return block.size + (behind.size if behind is not None and not behind.mapped else 0)


def _has_addresses(start: Block, size: int) -> bool:
    found, block = 0, start
    while found < size:
        if block.in_use:
            return False
        found += block.size
        if block.next is None:
            break
        block = block.next
    return found >= size
