"""The allocator itself: where a request finds its block, when a segment is asked for, and when segments go back."""

from solvers.ir.requests import HeldRun
from solvers.timeline.segments.blocks import Block, Pool
from solvers.timeline.segments.expandable import Expandable
from solvers.timeline.segments.settings import (
    MOST_UNSPLIT_REST,
    SMALLEST_BLOCK,
    SegmentSettings,
    is_small,
    rounded,
    segment_bytes,
)
from solvers.timeline.segments.statistics import Statistics


class Refused(Exception):
    """The request that `torch.OutOfMemoryError` would answer.

    `missing` bytes keep the limit or the device from giving a segment of `segment_bytes`, or an expandable one's pages.
    """

    def __init__(self, size: int, segment: int, missing: int) -> None:
        super().__init__(f"{size} bytes need a segment of {segment} bytes, and {missing} bytes are missing for it")
        self.size, self.segment_bytes, self.missing = size, segment, missing


class Segments:
    """One device's allocator, empty at first.

    A new segment lies at a higher address than every one before it; where two free blocks are alike, the lower address
    is taken. Frees take effect at once: blocks that `record_stream` named wait for events on a device, not here.
    """

    def __init__(self, settings: SegmentSettings | None = None) -> None:
        self.settings = settings or SegmentSettings()
        self.statistics = Statistics()
        self._small, self._large = Pool(small=True), Pool(small=False)
        self._end = self._missing = 0
        self._expandable = Expandable(self.settings, self.statistics) if self.settings.expandable else None

    def allocate(self, size: int, stream: int = 0) -> Block:
        """The block for a request of `size` bytes (1 or more); raises `Refused`, after segments were given back."""
        block_bytes = rounded(size)
        pool = self._small if is_small(block_bytes) else self._large
        block = self._cached(pool, block_bytes, stream) or self._new(pool, block_bytes, stream)
        if block is None:
            self.statistics.ooms += 1
            raise Refused(size, segment_bytes(block_bytes), self._missing)
        return self._take(block, block_bytes)

    def adopt(self, run: HeldRun, address: int, before: Block | None) -> list[Block]:
        """The blocks of memory that is held already, placed at `address`, in an expandable segment behind `before`.

        Memory of the other kind of segments than these settings' is held, and serves no requests.
        """
        pool = self._small if run.small else self._large
        serves, blocks, last = run.expandable == self.settings.expandable, list[Block](), before
        if before is not None and before.address + before.size < address:
            bare = before.address + before.size
            last = Block(pool, run.stream, bare, address - bare, mapped=False)
            last.insert_after(before)
            pool.add(last)
        for size, used in run.blocks:
            block = Block(pool, run.stream, address, size)
            if last is not None:
                block.insert_after(last)
            block.in_use = used or not serves
            blocks.append(block)
            last, address = block, address + size
            self.statistics.allocated.add(size if used else 0)
            self.statistics.reserved.add(size)
        for block in blocks:
            if not block.in_use:
                pool.add(block)
                self.statistics.inactive_split.add(block.size if block.is_split and not run.expandable else 0)
        self.statistics.segments += 0 if run.expandable else 1
        self._end = max(self._end, address)
        return blocks

    def extend(self, last: Block) -> None:
        """Let a range of an expandable segment go on behind its last block."""
        assert self._expandable is not None
        self._expandable.extend(last)

    def free(self, block: Block) -> None:
        """Give a block back to its pool, joined with its free neighbours."""
        self.statistics.allocated.add(-block.size)
        block.in_use = False
        pool, inactive = block.pool, 0
        for neighbour in (block.prev, block.next):
            inactive -= pool.merge(block, neighbour)
        pool.add(block)
        if self._expandable is None:
            self.statistics.inactive_split.add(inactive + (block.size if block.is_split else 0))

    def release_cached(self) -> None:
        """Give back to the driver what is wholly free, as `torch.cuda.empty_cache()` does."""
        for pool in (self._large, self._small):
            if self._expandable is not None:
                self._expandable.release(pool)
                continue
            for block in pool.blocks():
                if not block.is_split:
                    self._return(block)

    def _cached(self, pool: Pool, size: int, stream: int) -> Block | None:
        """The smallest free block that is large enough; None where there is none, or it would waste too much."""
        found = pool.from_size(stream, size)
        best = next(found, None)
        if best is None:
            return None
        if self._expandable is not None:
            best = self._expandable.best(best, found)
        split = self.settings.max_split_bytes
        if split is not None:
            oversize = size < split <= best.size
            if oversize or (size >= split and best.size >= size + self.settings.most_rounding_bytes):
                return None
        pool.remove(best)
        return best

    def _new(self, pool: Pool, size: int, stream: int) -> Block | None:
        """A block of new memory: at once; else after large cached blocks have gone; else after all that can go."""
        block = self._grown(pool, size, stream)
        if block is None and self._release_oversize(pool, size, stream):
            block = self._grown(pool, size, stream)
        if block is None:
            self.release_cached()
            self.statistics.retries += 1
            block = self._grown(pool, size, stream)
        return block

    def _grown(self, pool: Pool, size: int, stream: int) -> Block | None:
        """A whole new segment, or an expandable one grown; None where the limit or the device refuses."""
        segment, reserved = segment_bytes(size), self.statistics.reserved.now
        limit, device = self.settings.limit_bytes, self.settings.device_bytes
        if limit is not None and reserved + segment > limit:
            self._missing = reserved + segment - limit
            return None
        if self._expandable is not None:
            grown = self._expandable.grown(pool, size, stream)
            self._missing = self._expandable.missing
            return grown
        if device is not None and reserved + segment > device:
            self._missing = reserved + segment - device
            return None
        block = Block(pool, stream, self._end, segment)
        self._end += segment
        self.statistics.reserved.add(segment)
        self.statistics.segments += 1
        return block

    def _take(self, block: Block, size: int) -> Block:
        """Mark a block as in use, cut to size where enough remains; the rest waits behind it."""
        statistics, was_split = self.statistics, block.is_split
        rest = block.size - size
        if self._splits(block.pool, size, rest):
            taken = Block(block.pool, block.stream, block.address, size)
            taken.prev, taken.next = block.prev, block
            if taken.prev is not None:
                taken.prev.next = taken
            block.prev, block.address, block.size = taken, block.address + size, rest
            block.pool.add(block)
            inactive, block = (-size if was_split else rest), taken
        else:
            inactive = -block.size if was_split else 0
        if self._expandable is None:
            statistics.inactive_split.add(inactive)
        block.in_use = True
        statistics.allocated.add(block.size)
        return block

    def _splits(self, pool: Pool, size: int, rest: int) -> bool:
        if pool.small or self._expandable is not None:
            return rest >= SMALLEST_BLOCK
        split = self.settings.max_split_bytes
        return rest > MOST_UNSPLIT_REST and (split is None or size < split)

    def _release_oversize(self, pool: Pool, size: int, stream: int) -> bool:
        """Give back cached blocks that are too large to split, just enough for the request; whether that was enough."""
        split = self.settings.max_split_bytes
        if split is None or self._expandable is not None:
            return False
        wanted = max(size, split)
        single = next(pool.from_size(stream, wanted), None)
        if single is not None:
            self._return(single)
            return True
        gone = 0
        for _, _, block in reversed(pool.free.get(stream, [])[:]):
            if gone >= wanted or block.size < split:
                break
            gone += block.size
            self._return(block)
        return gone >= wanted

    def _return(self, block: Block) -> None:
        block.pool.remove(block)
        self.statistics.reserved.add(-block.size)
        self.statistics.segments -= 1
        self.statistics.returned += 1
