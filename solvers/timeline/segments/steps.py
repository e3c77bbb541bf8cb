"""A step's graph as requests and frees, under a swap schedule too, and what its repetitions would hold in segments."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from solvers.ir.fields import TensorId
from solvers.ir.graph import OpGraph
from solvers.ir.requests import HeldRun, StepRequests
from solvers.ir.schedule import Schedule
from solvers.timeline.segments.replay import Event, Refusal, replay
from solvers.timeline.segments.requests import recorded, repeated, under_schedule
from solvers.timeline.segments.settings import MOST_SMALL, SMALL_SEGMENT, SegmentSettings

MOST_PIECES = 256
"""Into so many small blocks at most is cut what no tensor explains."""
STEPS = 3
"""How often a step is replayed: what the first leaves in segments is what the next finds, and a third repeats it."""


@dataclass(frozen=True)
class StepHeld:
    """What repetitions of a step hold: peaks in bytes, whether the last one met a retry, and the first refusal."""

    allocated_peak: int
    reserved_peak: int
    retries: int
    refusal: Refusal | None

    @property
    def settles(self) -> bool:
        """Whether every request is served, in the last step without giving anything back to the driver."""
        return self.refusal is None and self.retries == 0

    def keeps(self, budget_bytes: int) -> bool:
        """Whether it settles, and never holds more than that."""
        return self.settles and self.reserved_peak <= budget_bytes


def held_by_steps(
    graph: OpGraph, schedule: Schedule | None, settings: SegmentSettings, runs: Sequence[HeldRun] | None = None
) -> StepHeld:
    """What the allocator holds when a step is repeated, under a schedule or as it was profiled; *modelled*.

    Where the graph knows the step's own requests, these are replayed, on what the allocator held after the profile less
    its cache, or on `runs`. Else the graph tells the sizes and the uses of tensors, not when each dies: a tensor goes
    after its last use, and what else was in use during an operator counts as one block that lives as long as the
    operator. Where all tensors are small it counts as blocks of the largest one's size: a larger one would be the only
    request of the step that asks for a large segment.
    """
    if isinstance(graph.requests, StepRequests):
        step = recorded(graph.requests, runs)
        step = step if schedule is None else under_schedule(step, schedule)
        events, begun = repeated(step, STEPS)[len(step.held) :], graph.requests.runs if runs is None else runs
        last = len(repeated(step, STEPS - 1)) - len(step.held)
    else:
        begun = ()
        requests = _Requests(graph, schedule)
        events = [*requests.pool(settings.pool_bytes), *requests.resident()]
        events += [event for _ in range(STEPS - 1) for event in requests.step()]
        last = len(events)
        events += requests.step()
    done = replay(events, settings, runs=begun)
    late = done.retried_at is not None and done.retried_at >= last
    return StepHeld(done.allocated_peak, done.reserved_peak, int(late), done.refusal)


def unlimited(settings: SegmentSettings) -> SegmentSettings:
    """The same allocator on a device without end."""
    return replace(settings, device_bytes=None, limit_bytes=None)


def least_held(
    graph: OpGraph, schedule: Schedule, settings: SegmentSettings, runs: Sequence[HeldRun] | None = None
) -> int:
    """The least limit found by halving in which steps under a schedule are held; *modelled*, as `held_by_steps`.

    As with every such search, a little more can be too little again.
    """
    free = held_by_steps(graph, schedule, unlimited(settings), runs)
    low, high = free.allocated_peak // SMALL_SEGMENT, -(-free.reserved_peak // SMALL_SEGMENT)
    while low < high:
        middle = (low + high) // 2
        limit = middle * SMALL_SEGMENT
        held = held_by_steps(graph, schedule, replace(settings, device_bytes=None, limit_bytes=limit), runs)
        low, high = (low, middle) if held.keeps(limit) else (middle + 1, high)
    return high * SMALL_SEGMENT


class _Requests:
    """Numbers blocks anew for each step, as a program makes new tensors."""

    def __init__(self, graph: OpGraph, schedule: Schedule | None) -> None:
        self._graph = graph
        self._sizes = {tensor.id: graph.block_bytes(tensor) for tensor in graph.tensors}
        self._born: dict[int, list[TensorId]] = {}
        self._dies: dict[int, list[TensorId]] = {}
        self._acts: dict[int, list[tuple[str, TensorId]]] = {}
        self._blocks: dict[TensorId, int] = {}
        self._next = 0
        for tensor in graph.tensors:
            if tensor.born is not None and tensor.bytes:
                self._born.setdefault(tensor.born, []).append(tensor.id)
                self._dies.setdefault(max((tensor.born, *tensor.uses)), []).append(tensor.id)
        for action in () if schedule is None else schedule.actions:
            if action.op is not None and action.do in ("release", "swap_in"):
                self._acts.setdefault(action.op, []).extend((action.do, name) for name in action.data)
        self._rest = self._unexplained()
        largest = max(self._sizes.values(), default=0)
        self._piece = largest if 0 < largest <= MOST_SMALL else None

    def pool(self, size: int) -> Iterator[Event]:
        """A block that is free again at once."""
        if size > 0:
            yield Event(self._next, size)
            yield Event(self._next, 0)
            self._next += 1

    def resident(self) -> Iterator[Event]:
        """What is there before the step; what no tensor of the graph explains is one block."""
        level = 0
        for tensor in self._graph.tensors:
            if tensor.born is None and tensor.bytes:
                level += self._sizes[tensor.id]
                yield self._take(tensor.id, self._sizes[tensor.id])
        if (self._graph.resident_bytes or 0) > level:
            yield from self._pieces((self._graph.resident_bytes or 0) - level)

    def step(self) -> Iterator[Event]:
        """One step from its first operator to its last; releases and swap-ins come before their operator."""
        for op in range(len(self._graph.ops)):
            for do, name in self._acts.get(op, ()):
                if do == "swap_in":
                    yield self._take(name, self._sizes[name])
                elif name in self._blocks:
                    yield Event(self._blocks.pop(name), 0)
            for name in self._born.get(op, ()):
                yield self._take(name, self._sizes[name])
            rest = list(self._pieces(self._rest[op]))
            yield from rest
            yield from (Event(event.block, 0) for event in rest)
            for name in self._dies.get(op, ()):
                if name in self._blocks:
                    yield Event(self._blocks.pop(name), 0)

    def _pieces(self, size: int) -> Iterator[Event]:
        """Blocks of so many bytes that no tensor of the graph explains."""
        piece = None if self._piece is None else max(self._piece, -(-size // MOST_PIECES))
        if piece is None or piece > MOST_SMALL:  # so much is held by others, in segments of their own
            piece = size
        while size > 0:
            yield self._take(None, min(size, piece))
            size -= piece

    def _take(self, name: TensorId | None, size: int) -> Event:
        event = Event(self._next, size)
        if name is not None:
            self._blocks[name] = self._next
        self._next += 1
        return event

    def _unexplained(self) -> list[int]:
        """By op, what was in use beyond the tensors that live then."""
        level = max(
            sum(self._sizes[tensor.id] for tensor in self._graph.tensors if tensor.born is None),
            self._graph.resident_bytes or 0,
        )
        rest = []
        for op, used in enumerate(self._graph.memory_bytes):
            level += sum(self._sizes[name] for name in self._born.get(op, ()))
            rest.append(max(0, used - level))
            level -= sum(self._sizes[name] for name in self._dies.get(op, ()))
        return rest
