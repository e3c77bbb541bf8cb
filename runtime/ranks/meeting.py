"""Where the members of a group meet: an operation happens once all of them have called it, and takes its time."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from runtime.device import SimDevice
from runtime.ranks.exchange import Call, Kind, exchange
from runtime.ranks.lanes import End, Issue, bytes_of, finish, unobserved
from runtime.ranks.turns import Turns, Wait
from solvers.ir.errors import BayplanError
from solvers.timeline.collectives import (
    Algorithm,
    Collective,
    collective_lanes,
    collective_ns,
    message_lanes,
    message_ns,
)

COLLECTIVES: dict[Kind, Collective] = {
    "all_reduce": "all_reduce",
    "reduce": "reduce",
    "broadcast": "broadcast",
    "all_gather": "all_gather",
    "all_gather_single": "all_gather",
    "gather": "gather",
    "scatter": "scatter",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "all_to_all": "all_to_all",
    "barrier": "barrier",
}


class Mismatch(BayplanError):
    """The members of a group call different operations, or the same of different sizes."""


class Place(NamedTuple):
    """Which of a group's operations are numbered together: its collectives, or messages of one pair and tag."""

    kind: Literal["collective", "message"] = "collective"
    source: int = 0
    destination: int = 0
    tag: int = 0


class Key(NamedTuple):
    """The same for all members of an operation, and no other operation's."""

    group: Hashable
    place: Place
    number: int


@dataclass
class Part:
    """One member's share of an operation: its call, when it could begin, what it gives and where it wants the result.

    `member` is its place in the group. `issue` is None for tensors of the CPU: then `ready_ns` is the host's clock.
    `inputs` are the program's own tensors, read when the last member has come.
    """

    member: int
    call: Call
    inputs: list[Tensor]
    outputs: list[Tensor]
    issue: Issue | None
    ready_ns: int


@dataclass
class Meeting:
    """One operation of one group. `done` once it has happened; a mismatch is told to every member."""

    what: str
    ranks: tuple[int, ...]
    parts: dict[int, Part] = field(default_factory=dict)
    ends: dict[int, End] = field(default_factory=dict)
    end_ns: int = 0
    done: bool = False
    error: Exception | None = None

    def size_bytes(self) -> int:
        """What the larger side of the operation holds; of an all-to-all, what the busiest member sends."""
        parts = list(self.parts.values())
        if parts[0].call.kind == "all_to_all":
            return max(sum(t.numel() * t.element_size() for t in part.inputs) for part in parts)
        return parts[0].call.total_bytes(len(self.ranks))

    def missing(self) -> tuple[int, ...]:
        """The global ranks that have not come yet."""
        return tuple(rank for member, rank in enumerate(self.ranks) if member not in self.parts)


class Meetings:
    """All operations of a run of ranks in one process, and the links over which they go."""

    def __init__(self, sim: SimDevice, names: Sequence[str], algorithm: Algorithm) -> None:
        self.hardware = sim.hardware
        self.names = tuple(names)
        """The device in the hardware file that each rank stands for."""
        self._algorithm: Algorithm = algorithm
        self._sim = sim
        self._open: dict[Key, Meeting] = {}

    def arrive(self, key: Key, what: str, ranks: tuple[int, ...], part: Part) -> Meeting:
        """A member comes to an operation; with the last one it happens."""
        meeting = self._open.setdefault(key, Meeting(what, ranks))
        meeting.parts[part.member] = part
        if len(meeting.parts) == len(ranks):
            del self._open[key]
            try:
                self._happen(meeting)
            except Exception as error:
                meeting.error = error
            meeting.done = True
            meeting.parts.clear()  # else a member that still holds its work would hold the others' tensors
        return meeting

    def wait(self, turns: Turns, meeting: Meeting) -> None:
        """Gives the turn away until the operation has happened. Raises what failed in it, or `Deadlock`."""
        turns.wait(Wait(meeting.what, meeting.missing, lambda: meeting.done))
        if meeting.error is not None:
            raise meeting.error

    def wait_for_all_of(self, turns: Turns, rank: int) -> None:
        """Gives the turn away until every operation to which a rank has come has happened."""
        mine = [meeting for meeting in self._open.values() if any(meeting.ranks[m] == rank for m in meeting.parts)]
        for meeting in mine:
            self.wait(turns, meeting)

    def forget(self) -> None:
        """Lets go of operations that will never happen, and of their tensors."""
        self._open.clear()

    def duration_ns(self, call: Call, ranks: Sequence[int], size_bytes: int) -> int:
        """How long an operation between these ranks takes on free links."""
        names = [self.names[rank] for rank in ranks]
        if call.kind == "message":
            return message_ns(self.hardware, names[0], names[1], size_bytes)
        return collective_ns(self.hardware, COLLECTIVES[call.kind], names, size_bytes, self._algorithm)

    def reserve(self, meeting: Meeting, earliest_ns: int, call: Call, size_bytes: int) -> int:
        """The start that an operation is given on its links; sets its end."""
        names = [self.names[rank] for rank in meeting.ranks]
        lanes = (
            message_lanes(self.hardware, *names) if call.kind == "message" else collective_lanes(self.hardware, names)
        )
        duration_ns = self.duration_ns(call, meeting.ranks, size_bytes)
        start = self._sim.reserve_links(lanes, earliest_ns, duration_ns)
        meeting.end_ns = start + duration_ns
        return start

    def _happen(self, meeting: Meeting) -> None:
        parts = [meeting.parts[member] for member in sorted(meeting.parts)]
        meeting.error = _mismatch(meeting, parts)
        if meeting.error is not None:
            return
        if parts[0].issue is None:
            # Between CPUs, by whatever joins them: nobody goes on before the last has come; the exchange takes no time.
            meeting.end_ns = max(part.ready_ns for part in parts)
            for part, sources in zip(parts, exchange(parts[0].call, [part.inputs for part in parts]), strict=True):
                fill(part.outputs, sources)
        else:
            self._happen_on_devices(meeting, parts)

    def _happen_on_devices(self, meeting: Meeting, parts: list[Part]) -> None:
        call = parts[0].call
        issues = [part.issue for part in parts if part.issue is not None]
        earliest = max(issue.earliest_ns() for issue in issues)
        size_bytes = meeting.size_bytes()
        start = self.reserve(meeting, earliest, call, size_bytes)
        moves = _moves(call, parts) if call.kind != "barrier" else []
        ends = finish(issues, call.kind, start, meeting.end_ns, size_bytes, moves)
        meeting.ends = dict(enumerate(ends))


def _moves(call: Call, parts: list[Part]) -> list[tuple[int, Tensor, Tensor]]:
    """What each member's outputs become; nothing where a member's bytes are not known."""
    with unobserved():
        inputs = [[bytes_of(tensor) for tensor in part.inputs] for part in parts]
    content = [[tensor for tensor in one if tensor is not None] for one in inputs]
    if [len(one) for one in content] != [len(one) for one in inputs]:
        return []
    with torch.no_grad(), unobserved():
        given = exchange(call, content)
    return [
        (member, output, source.reshape(output.shape))
        for member, (part, sources) in enumerate(zip(parts, given, strict=True))
        for output, source in zip(part.outputs, sources, strict=True)
    ]


def fill(outputs: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Puts what an operation gives into tensors of the CPU."""
    with torch.no_grad():
        for output, source in zip(outputs, sources, strict=True):
            output.copy_(source.reshape(output.shape))


def _mismatch(meeting: Meeting, parts: list[Part]) -> Mismatch | None:
    first = parts[0]
    for part in parts[1:]:
        one, other = (f"rank {meeting.ranks[member]}" for member in (first.member, part.member))
        if part.call != first.call:
            return Mismatch(
                f"in {meeting.what} {one} calls {first.call}, but {other} calls {part.call}: let all ranks call the "
                "same operations with the same sizes in the same order"
            )
        if (part.issue is None) != (first.issue is None):
            where = ["on the CPU" if either.issue is None else "on a device" for either in (first, part)]
            return Mismatch(
                f"in {meeting.what} {one} has its tensor {where[0]}, but {other} has its own {where[1]}: move both to "
                "the same kind of device"
            )
    return _unequal_pair(meeting, parts) if first.call.kind == "all_to_all" else None


def _unequal_pair(meeting: Meeting, parts: list[Part]) -> Mismatch | None:
    for sender in parts:
        for receiver in parts:
            sent, taken = sender.inputs[receiver.member].numel(), receiver.outputs[sender.member].numel()
            if sent != taken:
                one, other = (meeting.ranks[part.member] for part in (sender, receiver))
                return Mismatch(
                    f"in {meeting.what} rank {one} sends {sent} numbers to rank {other}, which expects {taken}: give "
                    "both the same sizes"
                )
    return None
