"""The chunk store: brings chunks to the device as planned, or on demand where a step is another one than the plan's.

Every hand-over is an event: the lane that loads waits for the last reader of the buffer, compute waits for the load,
the lane that offloads waits for the last gradient, and the next user of the buffer for the offload.
"""

from collections.abc import Iterable, Sequence

import torch

from runtime.device.native import core
from runtime.layout.chunk import Chunk, Slot
from runtime.layout.course import Course, Load
from runtime.layout.gradients import Gradients
from runtime.layout.log import Log
from runtime.layout.pool import private_room
from solvers.check.layout.buffers import Name
from solvers.ir.errors import InvalidInput


class Store:
    """All chunks of a model, and what of them is on the device now; `buffers` is how many may be that come and go."""

    def __init__(self, chunks: Sequence[Chunk], log: Log, buffers: int, course: Course, gradients: Gradients) -> None:
        self.chunks, self.device, self.buffers = tuple(chunks), log.device, buffers
        self.log = log
        self.gradients = gradients
        self.departures = 0
        self.loads = 0
        self._course = course
        self._following = False
        self._cursor = -1
        self._next = 0
        self._done: dict[Name, torch.Event] = {}
        self._bound: set[int] = set()
        self._room = private_room(log.device)
        self.lane: torch.Stream = core.copy_lanes(log.device)[0]

    def begin(self, *, planned: bool) -> None:
        """A forward begins. What is on the device may be older than the masters, so it goes first."""
        self.gradients.begin()
        self.release()
        self.gradients.settle()
        self._following, self._cursor, self._next = planned, -1, 0
        self._done.clear()
        self._bound.clear()
        for chunk in self.chunks:
            chunk.begin()
        self._refresh()
        if planned:
            self.log.begin_step()
            self._advance()

    def _refresh(self) -> None:
        """Somebody has changed masters (loaded states, say) of which half-precise copies travel."""
        stale = [chunk for chunk in self.chunks if chunk.mixed and chunk.versions != chunk.version()]
        if stale:
            self.lane.synchronize()  # it may still read the copies
        for chunk in stale:
            chunk.narrow()

    def enter(self, number: int, chunks: Iterable[int]) -> None:
        """A pass begins, hence those before it are launched; its chunks are there for what is launched from now on."""
        if self._following and number <= self._cursor:
            self._depart()
        if not self._following:
            self.need(chunks)
            return
        self.log.end_pass()
        ended = self._compute().record_event()
        for one in range(max(self._cursor, 0), number):
            self._ended(self._course.passes[one].name, self._course.passes[one].asks, ended)
        self._cursor = number
        asks = self._course.passes[number].asks
        self._bound = set(asks)
        self._advance()
        if any(not self.chunks[chunk].here for chunk in asks):
            self._depart()
        self.need([*asks, *chunks])
        if self._following:
            self.log.begin_pass(*self._course.passes[number].name)

    def enter_once(self, number: int, chunks: Iterable[int]) -> None:
        """The same, where several gradients may say so: a pass that has begun begins no more.

        Then a chunk whose gradients have all come is left alone: a later read of it brings it back.
        """
        if self._following and 0 <= number <= self._cursor:
            for chunk in (self.chunks[one] for one in chunks):
                if chunk.waiting or not chunk.trainable:
                    self.touch(chunk)
        else:
            self.enter(number, chunks)

    def need(self, chunks: Iterable[int]) -> None:
        """These chunks are there, together, for what is launched from now on."""
        wanted = list(chunks)
        if not self._following:
            self._bound = set(wanted)
        for number in wanted:
            self.touch(self.chunks[number])

    def touch(self, chunk: Chunk, place: int | None = None) -> None:
        """A chunk is there for what is launched from now on, whatever the plan says; a slot of it as a parameter."""
        if chunk.persistent:
            return
        if chunk.overwritten and (place in chunk.overwritten or not chunk.came):
            self.gradients.leave(chunk)
            self._free([chunk])
        if not chunk.here:
            self._depart()
            self._load(chunk, self._spare(chunk))
        if not chunk.ready:
            assert chunk.loaded is not None
            self._compute().wait_event(chunk.loaded)
            chunk.ready = True
        chunk.used = chunk.left = None

    def gradient(self, chunk: Chunk, place: int, slot: Slot) -> None:
        """A gradient of this backward is complete; with the chunk's last one all leave for the host."""
        if self.gradients.take(chunk, place, slot):
            self.gradients.leave(chunk)
            if chunk.here and chunk.left is not None:
                self._done[("offload", chunk.number)] = chunk.left
            if self._following:
                self._advance()

    def leave(self) -> None:
        """All gradients that will come have come, and are on their way."""
        self.log.end_pass()
        for chunk in self.chunks:
            if chunk.came:
                self.gradients.leave(chunk)

    def end_backward(self) -> None:
        """They are on the host when this returns."""
        self.release()
        self.gradients.settle()
        for chunk in self.chunks:
            chunk.begin()

    def release(self) -> None:
        """Give back all buffers."""
        self._following = False
        self._free([chunk for chunk in self.chunks if chunk.here and not chunk.persistent])

    @property
    def following(self) -> bool:
        """Whether the step is the planned one so far."""
        return self._following

    @property
    def here(self) -> list[Chunk]:
        """Chunks that are in buffers now."""
        return [chunk for chunk in self.chunks if chunk.here and not chunk.persistent]

    def _compute(self) -> torch.Stream:
        return torch.accelerator.current_stream(self.device)

    def _depart(self) -> None:
        """The step is not the planned one: from here on chunks come when they are needed."""
        if self._following:
            self._following = False
            self.departures += 1

    def _ended(self, name: Name, asks: Sequence[int], event: torch.Event) -> None:
        self._done[name] = event
        for number in asks:
            self.chunks[number].used = event

    def _advance(self) -> None:
        """Issue all loads whose buffer is free, in their order."""
        loads = self._course.loads
        while self._next < len(loads) and self._may(loads[self._next]):
            load = loads[self._next]
            self._next += 1
            victim = None if load.victim is None else self.chunks[load.victim]
            if not self.chunks[load.chunk].here:
                self._load(self.chunks[load.chunk], victim if victim is not None and victim.here else None)

    def _may(self, load: Load) -> bool:
        return load.freed_by is None or load.freed_by in self._done

    def _spare(self, wanted: Chunk) -> Chunk | None:
        """The chunk that makes way for one that was not planned; None while a buffer is free, or all are in use."""
        here = self.here
        if len(here) < self.buffers:
            return None
        idle = [one for one in here if one is not wanted and one.number not in self._bound and not one.came]
        left = [one for one in idle if one.overwritten]
        return next(iter([*left, *idle]), None)

    def _load(self, chunk: Chunk, victim: Chunk | None) -> None:
        if victim is not None:
            self._free([victim])
        assert chunk.host is not None
        if chunk.updated:
            raise InvalidInput(
                f"chunk {chunk.number} is read after its update ran beside backward and before the optimizer's step: "
                "unwrap(model), load saved states, and wrap again with overlap_update=False"
            )
        with self.lane, self._room():
            chunk.storage.resize_(chunk.room_bytes)
        with self.lane, self.log.on(self.lane, "in", "load", chunk.number):
            chunk.flat[: chunk.bytes].copy_(chunk.host, non_blocking=True)
        chunk.loaded = self.lane.record_event()
        chunk.here, chunk.ready = True, False
        self.loads += 1

    def _free(self, chunks: Sequence[Chunk]) -> None:
        """Give back buffers, behind their last readers."""
        fresh: torch.Event | None = None
        for chunk in chunks:
            after = chunk.used if chunk.left is None else chunk.left
            if after is None:
                after = fresh = fresh or self._compute().record_event()
            self.lane.wait_event(after)
            with self.lane:
                chunk.storage.resize_(0)
            chunk.here = chunk.ready = False
            chunk.overwritten.clear()
            chunk.used = chunk.left = None


def flats(chunks: Sequence[Chunk]) -> dict[int, Chunk]:
    """The chunks that come and go, by the addresses of their storages."""
    return {chunk.storage._cdata: chunk for chunk in chunks if not chunk.persistent}
