"""Expandable segments once more, as plainly as can be: a range of addresses is a list of used, free and bare parts."""

from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

MIB = 1 << 20
State = Literal["used", "free", "bare"]


@dataclass
class Part:
    size: int
    state: State
    block: int | None = None


@dataclass
class Range:
    stream: int
    page: int
    parts: list[Part]

    def address(self, place: int) -> int:
        return [0, *accumulate(part.size for part in self.parts)][place]

    def tidy(self) -> None:
        """Join neighbours that are both free, or both bare."""
        found: list[Part] = []
        for part in self.parts:
            if found and part.state == found[-1].state != "used":
                found[-1].size += part.size
            elif part.size:
                found.append(part)
        self.parts = found

    def place_at(self, address: int) -> int:
        """The part that holds an address."""
        return next(n for n in range(len(self.parts)) if self.address(n) <= address < self.address(n + 1))


@dataclass
class NaiveExpandable:
    device: int
    ranges: list[Range] = field(default_factory=list)
    retries: int = 0

    @property
    def reserved(self) -> int:
        return sum(part.size for one in self.ranges for part in one.parts if part.state != "bare")

    @property
    def allocated(self) -> int:
        return sum(part.size for one in self.ranges for part in one.parts if part.state == "used")

    def request(self, block: int, size: int, stream: int) -> bool:
        size = max(512, (size + 511) // 512 * 512)
        page = 2 * MIB if size <= MIB else 20 * MIB
        found = self.fitting(size, stream, page) or self.grown(size, stream, page)
        if found is None:
            self.release()
            self.retries += 1
            found = self.grown(size, stream, page)
        if found is None:
            return False
        one, place = found
        rest = one.parts[place].size - size
        one.parts[place : place + 1] = [Part(size, "used", block), Part(rest, "free")]
        one.tidy()
        return True

    def fitting(self, size: int, stream: int, page: int) -> tuple[Range, int] | None:
        def room(one: Range, place: int) -> int:
            behind = one.parts[place + 1] if place + 1 < len(one.parts) else Part(0, "used")
            return one.parts[place].size + (behind.size if behind.state == "bare" else 0)

        mine = [one for one in self.ranges if one.stream == stream and one.page == page]
        free = [
            (part.size, number, place)
            for number, one in enumerate(mine)
            for place, part in enumerate(one.parts)
            if part.state == "free" and part.size >= size
        ]
        places = [(mine[number], place) for _, number, place in sorted(free)]
        if not places:
            return None
        chosen = 0
        while chosen + 1 < len(places) and room(*places[chosen + 1]) < room(*places[chosen]):
            chosen += 1
        return places[chosen]

    def grown(self, size: int, stream: int, page: int) -> tuple[Range, int] | None:
        one, address = self.start(size, stream, page)
        if one.parts[one.place_at(address)].state == "bare" and not self.map(one, address, size):
            return None
        while one.parts[one.place_at(address)].size < size:
            held = one.parts[one.place_at(address)].size
            if not self.map(one, address + held, size - held):
                return None
        return one, one.place_at(address)

    def start(self, size: int, stream: int, page: int) -> tuple[Range, int]:
        for one in self.ranges:
            for place, part in enumerate(one.parts if (one.stream, one.page) == (stream, page) else []):
                if part.state != "bare":
                    continue
                begin = place - 1 if place and one.parts[place - 1].state == "free" else place
                found = 0
                for behind in one.parts[begin:]:
                    if behind.state == "used":
                        break
                    found += behind.size
                if found >= size:
                    return one, one.address(begin)
        extent = max(self.device + self.device // 8, size)
        self.ranges.append(Range(stream, page, [Part((extent + page - 1) // page * page, "bare")]))
        return self.ranges[-1], 0

    def map(self, one: Range, address: int, size: int) -> bool:
        place = one.place_at(address)
        bare = one.parts[place]
        assert bare.state == "bare"
        mapped = (min(size, bare.size) + one.page - 1) // one.page * one.page
        if self.reserved + mapped > self.device:
            return False
        one.parts[place : place + 1] = [Part(mapped, "free"), Part(bare.size - mapped, "bare")]
        one.tidy()
        return True

    def release(self) -> None:
        for one in self.ranges:
            parts: list[Part] = []
            for place, part in enumerate(one.parts):
                begin = (one.address(place) + one.page - 1) // one.page * one.page
                end = one.address(place + 1) // one.page * one.page
                if part.state == "free" and begin < end:
                    parts.append(Part(begin - one.address(place), "free"))
                    parts.append(Part(end - begin, "bare"))
                    parts.append(Part(one.address(place + 1) - end, "free"))
                else:
                    parts.append(part)
            one.parts = [part for part in parts if part.size]
            one.tidy()
        self.ranges = [one for one in self.ranges if len(one.parts) > 1 or one.parts[0].state != "bare"]

    def free(self, block: int) -> None:
        for one in self.ranges:
            for part in one.parts:
                if part.block == block and part.state == "used":
                    part.state, part.block = "free", None
                    one.tidy()
                    return
        raise AssertionError(block)
