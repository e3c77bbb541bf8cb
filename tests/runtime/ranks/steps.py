"""Small programs of ranks as lists of steps; a judge that knows from the lists alone what is unordered; a runner.

The judge shares nothing with the race check but the meaning of the words: it has a graph of begins and ends in place of
vector clocks, of the whole program in place of what has run so far, and compares all pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal, get_args

import torch
import torch.distributed as dist

from runtime.device import host_access
from runtime.device.native import load
from runtime.device.view import DeviceView
from runtime.ranks import RankRun
from tests.runtime.ranks.cluster import run

Operation = Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast", "send", "recv"]
Doing = Literal["compute", "record", "to_host", "to_device", "host", "task"]
Wait = Literal["wait", "stream_wait", "event_wait", "event_sync", "stream_sync", "device_sync", "barrier"]
HOST_WAITS = ("event_sync", "stream_sync", "device_sync", "barrier")
WAITS = get_args(Wait)
NUMBERS = 4


@dataclass(frozen=True)
class Step:
    """What a rank's host does next: a kernel, a copy, an operation of a group, an access of its own, or a wait.

    `stream` is current then; "worker" is the host's, which does tasks. `name` is the work that an operation gives or a
    wait awaits, an event (of a task, its end), or the stream that is waited for. `ranks` are the group's; of a message,
    its sender and its receiver. Buffers beginning with `g` hold what all ranks' others hold, those with `h` are
    page-locked memory of the host. `*_sync` and a barrier let the host wait.
    """

    do: Operation | Doing | Wait
    stream: str = "main"
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    name: str = ""
    ranks: tuple[int, ...] = ()

    @property
    def lane(self) -> object:
        """What orders an operation among others."""
        return (self.do in ("send", "recv"), self.ranks)


Program = list[list[Step]]
"""By rank."""


@dataclass
class _Touch:
    """A step's accesses, between two nodes of the graph."""

    step: int
    begin: int
    end: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    def conflicts(self, other: "_Touch") -> bool:
        mine, others = {*self.reads, *self.writes}, {*other.reads, *other.writes}
        return bool(set(self.writes) & others or set(other.writes) & mine)


@dataclass
class _Graph:
    """Who comes right after whom: a node for each kernel, two for each rank's share of an operation."""

    before: list[set[int]] = field(default_factory=list)
    members: dict[object, list[tuple[int, int]]] = field(default_factory=dict)

    def node(self, before: set[int]) -> int:
        self.before.append(set(before))
        return len(self.before) - 1

    def add(self, steps: Sequence[Step]) -> list[_Touch]:
        """Enters one rank's steps; returns its accesses."""
        fronts: dict[object, set[int]] = {}
        host = set[int]()
        works: dict[str, int] = {}
        events: dict[str, set[int]] = {}
        numbers: dict[object, int] = {}
        touches = []
        for number, step in enumerate(steps):
            front = fronts.setdefault(step.stream, set())
            match step.do:
                case "wait":
                    front.add(works[step.name])
                case "event_sync":
                    host |= events.get(step.name, set())
                case "stream_sync":
                    host |= fronts.get(step.name, set())
                case "device_sync":
                    host |= set[int]().union(*(nodes for name, nodes in fronts.items() if name != "worker"))
                case "stream_wait":
                    front |= fronts.get(step.name, set())
                case "event_wait":
                    front |= events.get(step.name, set())
                case "record":
                    events[step.name] = front | host
                case "host":
                    node = self.node(host)
                    host = {node}
                    touches.append(_Touch(number, node, node, step.reads, step.writes))
                case "compute" | "to_host" | "to_device" | "task":
                    node = self.node(front | host)
                    fronts[step.stream] = {node}
                    events |= {step.name: {node}} if step.do == "task" else {}
                    touches.append(_Touch(number, node, node, step.reads, step.writes))
                case _:
                    begin = self.node(front | host | fronts.get(step.lane, set()))
                    end = self.node({begin})
                    fronts[step.lane], works[step.name] = {end}, end
                    host |= {end} if step.do == "barrier" else set()
                    numbers[step.lane] = numbers.get(step.lane, 0) + 1
                    self.members.setdefault((step.lane, numbers[step.lane]), []).append((begin, end))
                    touches.append(_Touch(number, begin, end, step.reads, step.writes))
        return touches

    def join_members(self) -> None:
        """Each share of an operation ends after all of them have begun."""
        for shares in self.members.values():
            for _, end in shares:
                self.before[end] |= {begin for begin, _ in shares}

    def all_before(self) -> list[set[int]]:
        """By node, everything that comes before it or is it."""
        found = [{node} | before for node, before in enumerate(self.before)]
        changed = True
        while changed:
            changed = False
            for node in range(len(found)):
                more = found[node].union(*(found[other] for other in found[node]))
                changed |= len(more) > len(found[node])
                found[node] = more
        return found


def unordered(program: Program) -> list[set[tuple[int, int]]]:
    """By rank, the pairs of steps that touch a common buffer, one writing, and that nothing orders."""
    graph = _Graph()
    touches = [graph.add(steps) for steps in program]
    graph.join_members()
    return _pairs(touches, graph.all_before())


def _pairs(touches: list[list[_Touch]], before: list[set[int]]) -> list[set[tuple[int, int]]]:
    return [
        {
            (one.step, other.step)
            for one, other in combinations(mine, 2)
            if one.conflicts(other) and one.end not in before[other.begin] and other.end not in before[one.begin]
        }
        for mine in touches
    ]


def told(program: Program) -> list[set[tuple[int, int]]]:
    """By rank, the pairs of steps that the race check names when the program runs."""
    groups = sorted({step.ranks for steps in program for step in steps if step.ranks})

    def ranked(rank: int, device: torch.device) -> None:
        made = {ranks: dist.new_group(list(ranks)) for ranks in groups}
        _Runner(device, len(program), made).run(program[rank])

    found: RankRun[None] = run(ranked, len(program), races="record")
    pairs: list[set[tuple[int, int]]] = [set() for _ in program]
    for race in found.races:
        one, other = sorted((int(race.first.label), int(race.second.label)))
        pairs[race.second.device].add((one, other))
    return pairs


class _Runner:
    """One rank's streams, buffers, works and events."""

    def __init__(self, device: torch.device, ranks: int, groups: dict[tuple[int, ...], Any]) -> None:
        self._device, self._ranks, self._groups = device, ranks, groups
        self._streams: dict[str, Any] = {"main": torch.accelerator.current_stream()}
        self._buffers: dict[str, torch.Tensor] = {}
        self._works: dict[str, Any] = {}
        self._events: dict[str, Any] = {}
        self._after: Any = None

    def run(self, steps: Sequence[Step]) -> None:
        """Makes everything, waits for it, takes the steps, and waits for them."""
        label = load("runtime._sim").exchange_label
        for step in steps:
            for stream in (step.stream, step.name) if step.do in ("stream_wait", "stream_sync") else (step.stream,):
                self._streams.setdefault(stream, torch.Stream(device=self._device))
                self._buffers.setdefault(f"scratch {stream}", torch.zeros(NUMBERS, device=self._device))
            for name in (*step.reads, *step.writes):
                size = NUMBERS * (self._ranks if name.startswith("g") else 1)
                pinned = name.startswith("h")
                made = torch.zeros(size, device="cpu" if pinned else self._device, pin_memory=pinned)
                self._buffers.setdefault(name, made)
        torch.accelerator.synchronize()
        for number, step in enumerate(steps):
            before = label(str(number))
            if step.stream == "worker":
                self._give_to_worker(step)
            else:
                with self._streams[step.stream]:
                    self._take(step)
            label(before)
        torch.accelerator.synchronize()

    def _take(self, step: Step) -> None:
        stream = self._streams[step.stream]
        match step.do:
            case "wait":
                self._works[step.name].wait()
            case "stream_wait":
                stream.wait_stream(self._streams[step.name])
            case "record":
                self._events[step.name] = stream.record_event()
            case "event_wait":
                if step.name in self._events:
                    stream.wait_event(self._events[step.name])
            case "event_sync":
                if step.name in self._events:
                    self._events[step.name].synchronize()
            case "stream_sync":
                self._streams[step.name].synchronize()
            case "device_sync":
                torch.accelerator.synchronize()
            case "barrier":
                dist.barrier(self._groups[step.ranks])
            case "to_host" | "to_device":
                self._buffers[step.writes[0]].copy_(self._buffers[step.reads[0]], non_blocking=True)
            case "host":
                for name in step.reads:
                    host_access(self._buffers[name], write=False)
                for name in step.writes:
                    host_access(self._buffers[name], write=True)
            case "compute":
                scratch = self._buffers[f"scratch {step.stream}"]
                for name in step.reads:
                    torch.add(self._buffers[name][:NUMBERS], 1, out=scratch)
                for name in step.writes:
                    torch.add(scratch, 1, out=self._buffers[name][:NUMBERS])
            case _:
                self._works[step.name] = self._issue(step)

    def _give_to_worker(self, step: Step) -> None:
        """A task, or what the next one begins after."""
        if step.do == "event_wait":
            self._after = self._events.get(step.name)
            return
        reads, writes = ([self._buffers[name] for name in names] for names in (step.reads, step.writes))
        view, after, self._after = DeviceView(load("runtime._sim"), self._device.index), self._after, None
        self._events[step.name] = view.host_task(1_000, after, reads=reads, writes=writes)

    def _issue(self, step: Step) -> Any:
        reads, writes = ([self._buffers[name] for name in names] for names in (step.reads, step.writes))
        group = self._groups[step.ranks]
        match step.do:
            case "all_reduce":
                return dist.all_reduce(writes[0], group=group, async_op=True)
            case "all_gather":
                return dist.all_gather_into_tensor(writes[0], reads[0], group=group, async_op=True)
            case "reduce_scatter":
                return dist.reduce_scatter_tensor(writes[0], reads[0], group=group, async_op=True)
            case "broadcast":
                return dist.broadcast((reads or writes)[0], step.ranks[0], group=group, async_op=True)
            case "send":
                return dist.isend(reads[0], step.ranks[1], group=group)
            case _:
                return dist.irecv(writes[0], step.ranks[0], group=group)
