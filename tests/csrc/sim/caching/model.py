"""An independent model of PyTorch's caching allocator: the rules in plain Python, by looking at every block.

The names in brackets are functions of c10/cuda/CUDACachingAllocator.cpp. Addresses are modelled, too, because they
decide among equal sizes: a segment gets the best-fitting gap between others, the lowest of equal ones, else the end.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.csrc.sim.caching.sequences import (
    MIB,
    WORK_NS,
    Bench,
    Empty,
    Free,
    Malloc,
    Record,
    Run,
    State,
    Step,
    Work,
)


@dataclass(eq=False)
class Piece:
    """A stretch of a segment."""

    size: int
    state: str = "inactive"
    requested: int = 0
    users: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    @property
    def free(self) -> bool:
        return self.state in ("inactive", "unmapped")


@dataclass(eq=False)
class Region:
    """A segment, or the range of an expandable one."""

    address: int
    size: int
    stream: int
    small: bool
    page: int
    pieces: list[Piece]

    def address_of(self, piece: Piece) -> int:
        return self.address + sum(one.size for one in self.pieces[: self.pieces.index(piece)])

    def after(self, piece: Piece) -> Piece | None:
        place = self.pieces.index(piece) + 1
        return self.pieces[place] if place < len(self.pieces) else None

    def cut(self, piece: Piece, size: int) -> Piece:
        """What is left of a piece after so many bytes."""
        rest = Piece(piece.size - size, piece.state)
        self.pieces.insert(self.pieces.index(piece) + 1, rest)
        piece.size = size
        return rest

    def merge(self) -> None:
        """Neighbours in the same free state become one. [try_merge_blocks]"""
        place = 0
        while place + 1 < len(self.pieces):
            one, other = self.pieces[place : place + 2]
            if one.free and one.state == other.state:
                one.size += other.size
                self.pieces.remove(other)
            else:
                place += 1


def up(size: int, step: int) -> int:
    return -(-size // step) * step


class Refused(Exception):
    """Out of memory."""


class Model:
    """One device."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.options = bench, bench.allocator
        self.regions: list[Region] = []
        self.waiting: list[tuple[Region, Piece]] = []
        self.retries = self.ooms = self.now = 0
        self.busy: dict[int, int] = {}

    def reserved(self) -> int:
        return sum(p.size for region in self.regions for p in region.pieces if p.state != "unmapped")

    def fits(self, size: int) -> bool:
        return self.reserved() + size <= self.bench.capacity_bytes

    def malloc(self, requested: int, stream: int) -> tuple[Region, Piece]:
        self.process_events()
        size = up(requested, 512)
        small = size <= MIB
        whole = 2 * MIB if small else 20 * MIB if size < 10 * MIB else up(size, 2 * MIB)
        found = self.find(size, small, stream) or self.grow(size, whole, small, stream)
        if found is None and self.release_oversize(size, small, stream):
            found = self.grow(size, whole, small, stream)
        if found is None:
            self.retries += 1
            self.release_all()
            found = self.grow(size, whole, small, stream)
        if found is None:
            self.ooms += 1
            raise Refused
        region, piece = found
        rest = piece.size - size
        most = self.options.max_split_size_bytes
        if small or self.options.expandable_segments:  # [should_split]
            split = rest >= 512
        else:
            split = rest > MIB and (most is None or size < most)
        if split:
            region.cut(piece, size)
        piece.state, piece.requested = "active_allocated", requested
        return region, piece

    def cached(self, small: bool, stream: int) -> Iterator[tuple[int, int, Region, Piece]]:
        for region in self.regions:
            if (region.small, region.stream) == (small, stream):
                for piece in region.pieces:
                    if piece.state == "inactive":
                        yield piece.size, region.address_of(piece), region, piece

    def find(self, size: int, small: bool, stream: int) -> tuple[Region, Piece] | None:  # [get_free_block]
        enough = [one for one in sorted(self.cached(small, stream), key=lambda one: one[:2]) if one[0] >= size]
        if not enough:
            return None
        place = 0
        if self.options.expandable_segments:

            def room(place: int) -> int:
                _, _, region, piece = enough[place]
                beyond = region.after(piece)
                return piece.size + (beyond.size if beyond is not None and beyond.state == "unmapped" else 0)

            while place + 1 < len(enough) and room(place + 1) < room(place):
                place += 1
        had, _, region, piece = enough[place]
        most = self.options.max_split_size_bytes
        if most is not None and size < most <= had:
            return None
        if most is not None and size >= most and had >= size + self.options.max_non_split_rounding_bytes:
            return None
        return region, piece

    def place(self, size: int) -> int:
        """The best-fitting gap, else the end."""
        taken = sorted((region.address, region.size) for region in self.regions)
        gaps, end = [], 0
        for address, length in taken:
            if address > end:
                gaps.append((address - end, end))
            end = address + length
        return min((gap for gap in gaps if gap[0] >= size), default=(0, end))[1]

    def grow(self, size: int, whole: int, small: bool, stream: int) -> tuple[Region, Piece] | None:  # [alloc_block]
        limit = self.bench.limit_bytes
        if limit is not None and self.reserved() + whole > limit:
            return None
        if self.options.expandable_segments:
            return self.expand(size, small, stream)
        if not self.fits(whole):
            return None
        region = Region(self.place(whole), whole, stream, small, 0, [Piece(whole)])
        self.regions.append(region)
        return region, region.pieces[0]

    def expand(self, size: int, small: bool, stream: int) -> tuple[Region, Piece] | None:
        """Pages beside free ones, at the lowest address with room. [try_allocate_expandable_block]"""
        region, place = self.roomy(size, small, stream)
        need = size
        first = region.pieces[place]
        if first.state == "inactive":
            need -= first.size
            place += 1
        while need > 0:
            piece = region.pieces[place]
            if piece.state == "inactive":
                need, place = need - piece.size, place + 1
                continue
            mapped = up(min(piece.size, need), region.page)
            if not self.fits(mapped):
                region.merge()
                return None
            if mapped < piece.size:
                region.cut(piece, mapped)
            piece.state = "inactive"
            need, place = need - mapped, place + 1
        address = region.address_of(first)
        region.merge()
        for piece in region.pieces:
            if region.address_of(piece) <= address < region.address_of(piece) + piece.size:
                return region, piece
        raise AssertionError("what was mapped is gone")

    def roomy(self, size: int, small: bool, stream: int) -> tuple[Region, int]:  # [find_expandable_block]
        for region in sorted(self.regions, key=lambda region: region.address):
            if (region.small, region.stream) != (small, stream) or not region.page:
                continue
            for place, piece in enumerate(region.pieces):
                if piece.state != "unmapped":
                    continue
                start = place - 1 if place and region.pieces[place - 1].free else place
                room = 0
                for one in region.pieces[start:]:
                    if not one.free or room >= size:
                        break
                    room += one.size
                if room >= size:
                    return region, start
        page = 2 * MIB if small else 20 * MIB
        outside = 512  # what the sequences keep outside of segments is part of the device
        device = self.bench.capacity_bytes + outside
        length = up(max(device + device // 8, size), page)
        region = Region(self.place(length), length, stream, small, page, [Piece(length, "unmapped")])
        self.regions.append(region)
        return region, 0

    def free(self, region: Region, piece: Piece) -> None:
        piece.ends = [max(self.now, self.busy.get(user, 0)) for user in piece.users]
        if piece.ends:
            piece.state = "active_pending_free"
            self.waiting.append((region, piece))
        else:
            self.give_back(region, piece)

    def give_back(self, region: Region, piece: Piece) -> None:
        piece.state, piece.requested, piece.users, piece.ends = "inactive", 0, [], []
        region.merge()

    def process_events(self) -> None:
        for one in list(self.waiting):
            if all(end <= self.now for end in one[1].ends):
                self.waiting.remove(one)
                self.give_back(*one)

    def release(self, region: Region) -> None:
        self.now = max([self.now, *self.busy.values()])  # the driver waits for the device
        self.regions.remove(region)

    def release_oversize(self, size: int, small: bool, stream: int) -> bool:  # [release_available_cached_blocks]
        most = self.options.max_split_size_bytes
        if most is None:
            return False
        wanted = max(size, most)
        ordinary = [one for one in sorted(self.cached(small, stream), key=lambda one: one[:2]) if not one[2].page]
        if enough := [one for one in ordinary if one[0] >= wanted]:
            self.release(enough[0][2])
            return True
        released = 0
        for had, _, region, _ in reversed(ordinary):
            if released >= wanted or had < most:
                break
            self.release(region)
            released += had
        return released >= wanted

    def release_all(self) -> None:  # [release_cached_blocks]
        self.now = max([self.now, *(end for _, piece in self.waiting for end in piece.ends)])
        self.process_events()
        for region in list(self.regions):
            if region.page:
                self.unmap(region)
            elif [piece.state for piece in region.pieces] == ["inactive"]:
                self.release(region)

    def unmap(self, region: Region) -> None:  # [unmap_block]
        gave = False
        for piece in list(region.pieces):
            if piece.state != "inactive":
                continue
            start = region.address_of(piece) - region.address
            begin, end = up(start, region.page), (start + piece.size) // region.page * region.page
            if begin >= end:
                continue
            self.now = max(self.now, self.busy.get(region.stream, 0))
            pages = region.cut(piece, begin - start) if begin > start else piece
            if end - begin < pages.size:
                region.cut(pages, end - begin)
            pages.state, gave = "unmapped", True
        region.merge()
        if gave and [piece.state for piece in region.pieces] == ["unmapped"]:
            self.regions.remove(region)

    def runs(self) -> Iterator[Run]:
        for region in self.regions:
            blocks: list[tuple[int, str]] = []
            for piece in [*region.pieces, Piece(0, "unmapped")]:
                if piece.state != "unmapped":
                    blocks.append((piece.size, piece.state))
                elif blocks:
                    yield region.stream, region.small, tuple(blocks)
                    blocks = []

    def state(self) -> State:
        pieces = [(region, piece) for region in self.regions for piece in region.pieces]
        active = [piece for _, piece in pieces if not piece.free]
        split = [p.size for r, p in pieces if p.state == "inactive" and not r.page and len(r.pieces) > 1]
        return State(
            sum(piece.size for piece in active if piece.state == "active_allocated"),
            sum(piece.size for piece in active),
            sum(piece.requested for piece in active),
            self.reserved(),
            sum(split),
            sum(1 for region in self.regions if not region.page),
            self.retries,
            self.ooms,
            tuple(sorted(self.runs())),
        )


def predict(steps: Sequence[Step], bench: Bench) -> list[State]:
    """What `run` should give."""
    model, held, states = Model(bench), list[tuple[Region, Piece] | None](), []
    for step in steps:
        match step:
            case Malloc(size, stream):
                try:
                    held.append(model.malloc(size, stream))
                except Refused:
                    held.append(None)
            case Free(index):
                if index < len(held) and (gone := held[index]) is not None:
                    model.free(*gone)
                    held[index] = None
            case Record(index, stream):
                if index < len(held) and (used := held[index]) is not None and used[0].stream != stream:
                    used[1].users.append(stream)
            case Work(stream):
                model.busy[stream] = max(model.busy.get(stream, 0), model.now) + WORK_NS
            case Empty():
                model.now = max([model.now, *model.busy.values()])
                model.release_all()
        states.append(model.state())
    return states
