"""Ranks as processes: the same group, whose bytes and clocks travel by gloo."""

import os
import time
from collections.abc import Hashable
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C import _distributed_c10d as c10d

from runtime.device import SimDevice, use_sim
from runtime.ranks.backend import Transport, register
from runtime.ranks.group import BACKEND, RankDevice
from runtime.ranks.lanes import bytes_of, finish, host_jump, waiter
from runtime.ranks.meeting import Key, Meeting, Meetings, Mismatch, Part, fill
from runtime.ranks.report import rank_reports
from runtime.ranks.travelling import Sent, Travelling, post_collective, post_message, read, told
from runtime.ranks.turns import Deadlock
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
        meeting = Travelling(what, ranks, part=part, shapes_only=self._sim.shapes_only)
        self._open.append(meeting)
        inputs = [] if self._sim.shapes_only else [_on_cpu(tensor).clone() for tensor in part.inputs]
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
        self._end(meeting)

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
        with suppress(RuntimeError):
            next(iter(self._gloo.values())).barrier().wait(self._timeout)

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
        for member, (_, called, _) in heard.items():
            if called != told(part.call):
                meeting.error = Mismatch(
                    f"in {meeting.what} rank {meeting.ranks[part.member]} calls {part.call}, but rank "
                    f"{meeting.ranks[member]} calls {called.rpartition('#')[0]}: let all ranks call the same "
                    "operations with the same sizes in the same order"
                )
                raise meeting.error
        earliest = max(ready_ns for ready_ns, _, _ in heard.values())
        sources = [] if self._sim.shapes_only else meeting.given()
        meeting.done = True
        if part.issue is None:
            meeting.end_ns = earliest
            fill(part.outputs, sources)
            return
        size_bytes = (
            max(sent for _, _, sent in heard.values())
            if part.call.kind == "all_to_all"
            else part.call.total_bytes(len(meeting.ranks))
        )
        # The stream was given the same operations by every member, so that this one's end is all members' end.
        start = self._meetings.reserve(meeting, max(earliest, part.issue.earliest_ns()), part.call, size_bytes)
        moves = [
            (0, output, source.reshape(output.shape)) for output, source in zip(part.outputs, sources, strict=False)
        ]
        [end] = finish([part.issue], part.call.kind, start, meeting.end_ns, size_bytes, moves)
        meeting.ends = {part.member: end}


def join(
    *,
    hardware: Hardware | Path | str | None = None,
    algorithm: Algorithm = "ring",
    timeout_s: float = 60.0,
    **options: Any,
) -> dist.ProcessGroup:
    """Makes this process a rank, as torchrun's environment variables say, and returns the group of all of them.

    `torchrun --nproc-per-node=4 program.py` with `join()` in place of `run_ranks` runs the same program: the rank's
    device is `sim:{RANK}`, bytes and clocks travel by gloo, and losses are those of threads bit for bit. Races are seen
    within a process only, and operations of different groups do not wait for each other's links.

    Raises `InvalidInput` outside torchrun, or where the hardware has too few devices.
    """
    missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise InvalidInput(f"join found no {', '.join(missing)} in the environment: start the program by torchrun")
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    sim = use_sim(hardware, devices=ranks, **options)
    sim.set_tracing(True)
    names = accelerators(sim.hardware)
    if len(names) < ranks:
        raise InvalidInput(
            f"hardware {sim.hardware.name!r} has {len(names)} devices, but there are {ranks} ranks: choose a cluster"
        )
    torch.accelerator.set_device_index(rank)
    torch.autograd.set_multithreading_enabled(False)
    meetings = Meetings(sim.hardware, names[:ranks], algorithm)
    transport = ProcessTransport(sim, meetings, rank, ranks, timeout_s)
    _joined.enter_context(register(lambda: transport))
    _joined.enter_context(waiter(transport.wait_for_all))
    _joined.callback(_devices.clear)
    _joined.callback(transport.finish_sending)
    _devices.append((sim, rank, ranks))
    dist.init_process_group(BACKEND, timeout=timedelta(seconds=timeout_s))
    group = dist.group.WORLD
    assert group is not None
    return group


def leave() -> Report:
    """Ends what `join` began, and returns what this rank did. Raises `InvalidInput` without a `join`."""
    if not _devices:
        raise InvalidInput("leave was called without join: call join first")
    sim, rank, ranks = _devices[-1]
    report = rank_reports(sim, ranks)[rank]
    if dist.is_initialized():
        dist.destroy_process_group()
    _joined.close()
    return report


_joined = ExitStack()
_devices: list[tuple[SimDevice, int, int]] = []
"""The device, rank and number of ranks of a `join` that no `leave` has ended."""


def _on_cpu(tensor: Tensor) -> Tensor:
    found = tensor if tensor.device.type == "cpu" else bytes_of(tensor)
    assert found is not None, "shapes have no bytes to send"
    return found
