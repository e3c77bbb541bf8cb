"""Ranks as processes: the same group, whose bytes and clocks travel by gloo."""

import atexit
import time
from collections.abc import Hashable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from runtime.device import SimDevice, use_sim
from runtime.ranks.backend import Transport, register
from runtime.ranks.ending import let_go_of_groups
from runtime.ranks.group import BACKEND, RankDevice
from runtime.ranks.lanes import bytes_of, finish, host_jump, raise_races, waiter
from runtime.ranks.meeting import Key, Meeting, Meetings, Mismatch, Part, fill
from runtime.ranks.real import BACKENDS, RealRank, join_real
from runtime.ranks.report import rank_reports
from runtime.ranks.torchrun import Started, meet, started
from runtime.ranks.travelling import Sent, Travelling, post_collective, post_message, read, told
from runtime.ranks.turns import Deadlock
from runtime.ranks.world import own_draws
from solvers.ir.errors import InvalidInput
from solvers.ir.hardware import Hardware
from solvers.ir.report import Report
from solvers.timeline.collectives import Algorithm, accelerators


class ProcessTransport(Transport):
    """This process's rank, and a gloo group beside each of its groups."""

    def __init__(self, sim: SimDevice, meetings: Meetings, rank: int, ranks: int, timeout_s: float) -> None:
        self._sim, self._meetings = sim, meetings
        self._mine = RankDevice(rank, torch.device("sim", rank))
        self._ranks = ranks
        self._timeout = timedelta(seconds=timeout_s)
        self._gloo: dict[Hashable, Any] = {}
        self._open: list[Travelling] = []
        self._sent: list[Sent] = []

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return self._ranks

    def mine(self) -> RankDevice:
        """What this rank has."""
        return self._mine

    def open(self, key: Hashable, store: Any, member: int, members: int) -> None:
        """Makes the gloo group that carries this one's bytes."""
        self._gloo[key] = c10d.ProcessGroupGloo(c10d.PrefixStore("gloo", store), member, members, self._timeout)

    def arrive(self, key: Key, what: str, ranks: tuple[int, ...], part: Part) -> Meeting:
        """Sends this member's share on its way; the others' are awaited in `wait`."""
        meeting = Travelling(
            what,
            ranks,
            part=part,
        )
        self._open.append(meeting)
        found = [bytes_of(tensor) if tensor.device.type != "cpu" else tensor for tensor in part.inputs]
        inputs = [tensor.clone() for tensor in found if tensor is not None]
        meeting.knows = len(inputs) == len(found)
        post = post_message if part.call.kind == "message" else post_collective
        post(self._gloo[key.group], meeting, part, inputs, key)
        self._sent = [work for work in self._sent if not work[0].is_completed()] + meeting.sent
        return meeting

    def wait(self, meeting: Meeting) -> None:
        """Returns once every member's share is here. Raises `Mismatch`, or `Deadlock` after the timeout."""
        assert isinstance(meeting, Travelling)
        if meeting.error is not None:
            raise meeting.error
        # A stream's operations happen in their order, whichever the program waits for first.
        for earlier in [one for one in self._open if one.stream() == meeting.stream()]:
            if not meeting.done:
                self._happen(earlier)

    def _happen(self, meeting: Travelling) -> None:
        self._open.remove(meeting)
        try:
            self._hear(meeting)
            self._end(meeting)
        finally:
            meeting.let_go()

    def _hear(self, meeting: Travelling) -> None:
        """Returns once every member has told what it calls."""
        for work in meeting.works:
            try:
                work.wait(self._timeout)
            except RuntimeError as error:
                limit = self._timeout.total_seconds()
                what = f"rank {self._mine.rank} waited in {meeting.what}"
                if time.monotonic() - meeting.began_s < 0.9 * limit:
                    raise Deadlock(f"{what}, but the process of a rank that it needs has ended: see why") from error
                raise Deadlock(
                    f"{what} for {limit:g} s, and the other ranks did not come: let all of them call the same "
                    "operations in the same order"
                ) from error

    def wait_for_all(self, device: int) -> None:
        """Returns once all of this rank's operations have happened: its host is about to wait for them."""
        for meeting in list(self._open):
            self.wait(meeting)

    def finish_sending(self) -> None:
        """Returns once the others have taken what was sent to them, or are not going to."""
        for work, _ in self._sent:
            with suppress(RuntimeError):
                work.wait(self._timeout)
        self._sent = []
        # A process that ends first would cut off what is on its way to the others.
        for gloo in list(self._gloo.values())[:1]:
            with suppress(RuntimeError):
                gloo.barrier().wait(self._timeout)

    def close(self) -> None:
        """Ends gloo's groups, and with them their threads, though the program still holds its own."""
        self._open, self._sent = [], []
        self._gloo.clear()

    def host_waits(self, mine: RankDevice, time_ns: int) -> None:
        """This rank's host goes on at that time."""
        host_jump(mine.rank, time_ns)

    def host_ns(self, mine: RankDevice) -> int:
        """This rank's host clock."""
        return self._sim.at(mine.rank).host_ns()

    def _end(self, meeting: Travelling) -> None:
        part = meeting.part
        assert part is not None
        heard = {member: read(header) for member, header in meeting.headers.items()}
        for member, one in heard.items():
            if one.called != told(part.call):
                meeting.error = Mismatch(
                    f"in {meeting.what} rank {meeting.ranks[part.member]} calls {part.call}, but rank "
                    f"{meeting.ranks[member]} calls {one.called.rpartition('#')[0]}: let all ranks call the same "
                    "operations with the same sizes in the same order"
                )
                raise meeting.error
        earliest = max(one.ready_ns for one in heard.values())
        sources = meeting.given({member for member, one in heard.items() if one.knows})
        meeting.done = True
        if part.issue is None:
            meeting.end_ns = earliest
            fill(part.outputs, sources)
            return
        size_bytes = (
            max(one.sent_bytes for one in heard.values())
            if part.call.kind == "all_to_all"
            else part.call.total_bytes(len(meeting.ranks))
        )
        # The stream was given the same operations by every member, so that this one's end is all members' end.
        start = self._meetings.reserve(meeting, max(earliest, part.issue.earliest_ns()), part.call, size_bytes)
        moves = [
            (0, output, source.reshape(output.shape))
            for output, source in zip(part.outputs, sources, strict=bool(sources))
        ]
        [end] = finish([part.issue], part.call.kind, start, meeting.end_ns, size_bytes, moves)
        meeting.ends = {part.member: end}


def join(
    device: Literal["sim", "cuda", "cpu"] = "sim",
    *,
    hardware: Hardware | Path | str | None = None,
    algorithm: Algorithm = "ring",
    timeout_s: float = 60.0,
    **options: Any,
) -> dist.ProcessGroup:
    """Makes this process a rank, as torchrun's environment variables say, and returns the group of all of them.

    `torchrun --nproc-per-node=4 program.py` with `join()` in place of `run_ranks` runs the same program. On device
    "sim" the rank's device is `sim:{RANK}`, bytes and clocks travel by gloo, and losses are those of threads bit for
    bit; races are seen within a process only, and operations of different groups do not wait for each other's links.
    On "cuda" it is `cuda:{LOCAL_RANK}` and NCCL joins the ranks, on "cpu" gloo does: there nothing is modelled, and
    `hardware`, `algorithm` and the options of `use_sim` are refused. `rank_device` says which device it is; random
    numbers begin alike on all ranks, as in any processes. A rank waits `timeout_s` seconds for the others.

    Raises `InvalidInput` outside torchrun, or where a device is missing, or where the ranks do not find each other.
    """
    if _joined_as:
        raise InvalidInput("join was called before: call leave first")
    who, timeout = started(), timedelta(seconds=timeout_s)
    if device == "sim":
        return _join_sim(who, hardware, algorithm, timeout_s, options)
    if device not in BACKENDS:
        raise InvalidInput(f"device is {device!r}: choose of 'sim', 'cuda', 'cpu'")
    given = [name for name, value in {"hardware": hardware, **options}.items() if value is not None]
    if given or algorithm != "ring":
        raise InvalidInput(
            f"{', '.join(given or ['algorithm'])} is a simulated device's, but device is {device!r}: leave it out"
        )
    real, group = join_real(device, who, timeout)
    _joined_as.append(real)
    return group


def _join_sim(
    who: Started,
    hardware: Hardware | Path | str | None,
    algorithm: Algorithm,
    timeout_s: float,
    options: dict[str, Any],
) -> dist.ProcessGroup:
    sim = use_sim(hardware, devices=who.ranks, **options)
    sim.set_tracing(True)
    names = accelerators(sim.hardware)
    if len(names) < who.ranks:
        raise InvalidInput(
            f"hardware {sim.hardware.name!r} has {len(names)} device{'s' * (len(names) != 1)}, but there are "
            f"{who.ranks} ranks: choose a cluster"
        )
    meetings = Meetings(sim, names[: who.ranks], algorithm)
    transport = ProcessTransport(sim, meetings, who.rank, who.ranks, timeout_s)
    with ExitStack() as stack:
        stack.callback(torch.accelerator.set_device_index, torch.accelerator.current_device_index())
        torch.accelerator.set_device_index(who.rank)
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        stack.enter_context(register(lambda: transport))
        stack.enter_context(own_draws())
        stack.enter_context(waiter(transport.wait_for_all))
        group = meet(BACKEND, who, timedelta(seconds=timeout_s))
        _joined.enter_context(stack.pop_all())
    _joined.callback(transport.close)
    _joined.callback(transport.finish_sending)
    _joined.callback(transport.mine().let_go)
    _joined_as.append(SimRank(sim, who))
    return group


@dataclass(frozen=True)
class SimRank:
    """This process's rank on a simulated device."""

    sim: SimDevice
    who: Started

    @property
    def device(self) -> torch.device:
        """The rank's own."""
        return torch.device("sim", self.who.rank)

    def report(self) -> Report:
        """What the rank did so far, in virtual time. Raises the race check's error where a race is known only now."""
        raise_races(self.who.rank)
        return rank_reports(self.sim, self.who.ranks)[self.who.rank]


def rank_device() -> torch.device:
    """The device of this process's rank. Raises `InvalidInput` without a `join`."""
    return _rank().device


def rank_report() -> Report:
    """What this rank did since `join`. Raises `InvalidInput` without one."""
    return _rank().report()


def leave() -> Report:
    """Ends what `join` began, and returns what this rank did. Raises `InvalidInput` without a `join`.

    No group of its is left but what the program holds; its threads have come to rest.
    """
    if not _joined_as:
        raise InvalidInput("leave was called without join: call join first")
    found = rank_report()
    if dist.is_initialized():
        dist.destroy_process_group()
    _joined.close()
    _joined_as.clear()
    let_go_of_groups()
    return found


@atexit.register
def _come_to_rest() -> None:
    """Where a process ends without `leave`, as after an error."""
    if _joined_as:
        let_go_of_groups()


def _rank() -> SimRank | RealRank:
    if not _joined_as:
        raise InvalidInput("this process is no rank: call join first")
    return _joined_as[-1]


_joined = ExitStack()
_joined_as: list[SimRank | RealRank] = []
"""What a `join` made of this process that no `leave` has ended."""
