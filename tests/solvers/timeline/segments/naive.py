"""The caching allocator's rules once more, as slowly and plainly as can be: segments are lists, every search a scan."""

from dataclasses import dataclass, field

MIB = 1 << 20


@dataclass
class Part:
    size: int
    block: int | None = None  # who holds it; None: free


@dataclass
class Segment:
    stream: int
    small: bool
    parts: list[Part]


@dataclass
class Naive:
    """Without expandable segments. `limit` is what the driver gives; `split` is max_split_size."""

    limit: int | None = None
    split: int | None = None
    segments: list[Segment] = field(default_factory=list)
    retries: int = 0

    @property
    def reserved(self) -> int:
        return sum(part.size for segment in self.segments for part in segment.parts)

    @property
    def allocated(self) -> int:
        return sum(part.size for one in self.segments for part in one.parts if part.block is not None)

    @property
    def inactive_split(self) -> int:
        many = [segment for segment in self.segments if len(segment.parts) > 1]
        return sum(part.size for segment in many for part in segment.parts if part.block is None)

    def request(self, block: int, size: int, stream: int) -> bool:
        size = max(512, (size + 511) // 512 * 512)
        small = size <= MIB
        where = self.fitting(size, stream, small) or self.fresh(size, stream, small)
        if where is None:
            return False
        segment, place = where
        part = segment.parts[place]
        rest = part.size - size
        if rest >= 512 if small else rest > MIB and (self.split is None or size < self.split):
            segment.parts[place : place + 1] = [Part(size, block), Part(rest)]
        else:
            part.block = block
        return True

    def fitting(self, size: int, stream: int, small: bool) -> tuple[Segment, int] | None:
        """The smallest free part; segments are in the order of their addresses, so the first of the smallest."""
        best: tuple[int, Segment, int] | None = None
        for segment in self.segments:
            for place, part in enumerate(segment.parts):
                fits = part.block is None and part.size >= size
                if fits and segment.stream == stream and segment.small == small and (not best or part.size < best[0]):
                    best = part.size, segment, place
        if best is None:
            return None
        if self.split is not None:
            if size < self.split <= best[0]:
                return None
            if size >= self.split and best[0] >= size + 20 * MIB:
                return None
        return best[1], best[2]

    def fresh(self, size: int, stream: int, small: bool) -> tuple[Segment, int] | None:
        whole = 2 * MIB if small else 20 * MIB if size < 10 * MIB else (size + 2 * MIB - 1) // (2 * MIB) * 2 * MIB
        served = not self.too_much(whole)
        if not served and self.release_oversize(size, stream, small):
            served = not self.too_much(whole)
        if not served:  # even where the large blocks that have gone by now would do: PyTorch then releases all
            self.segments = [one for one in self.segments if len(one.parts) > 1 or one.parts[0].block is not None]
            self.retries += 1
            if self.too_much(whole):
                return None
        self.segments.append(Segment(stream, small, [Part(whole)]))
        return self.segments[-1], 0

    def too_much(self, whole: int) -> bool:
        return self.limit is not None and self.reserved + whole > self.limit

    def release_oversize(self, size: int, stream: int, small: bool) -> bool:
        if self.split is None:
            return False
        wanted = max(size, self.split)
        mine = [one for one in self.segments if one.stream == stream and one.small == small]
        free = [(part.size, -place, one) for place, one in enumerate(mine) for part in one.parts if part.block is None]
        large = sorted((found for found in free if found[0] >= wanted), key=lambda found: (found[0], -found[1]))
        if large:
            self.segments.remove(large[0][2])
            return True
        gone = 0
        for part, _, segment in sorted(free, key=lambda found: (-found[0], found[1])):
            if gone >= wanted or part < self.split:
                break
            gone += part
            self.segments.remove(segment)
        return gone >= wanted

    def free(self, block: int) -> None:
        for segment in self.segments:
            for part in segment.parts:
                if part.block == block:
                    part.block = None
                    segment.parts = merged(segment.parts)
                    return
        raise AssertionError(block)


def merged(parts: list[Part]) -> list[Part]:
    found: list[Part] = []
    for part in parts:
        if found and found[-1].block is None and part.block is None:
            found[-1] = Part(found[-1].size + part.size)
        else:
            found.append(part)
    return found
