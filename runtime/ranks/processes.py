"""Ranks as processes: the same group, whose bytes and clocks travel by gloo."""

import os
import pickle
import zlib
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C import _distributed_c10d as c10d

from runtime.device import SimDevice, use_sim
from runtime.ranks.backend import Transport, register
from runtime.ranks.exchange import Call, exchange
from runtime.ranks.group import BACKEND, RankDevice
from runtime.ranks.lanes import bytes_of, finish, host_jump, waiter
from runtime.ranks.meeting import Key, Meeting, Meetings, Mismatch, Part, Place, fill
from runtime.ranks.report import rank_reports
from runtime.ranks.turns import Deadlock
from solvers.ir.errors import InvalidInput
from solvers.ir.hardware import Hardware
from solvers.ir.report import Report
from solvers.timeline.collectives import Algorithm, accelerators

HEADER_BYTES = 512
"""Each member tells the others when it could begin and what it calls, in a message of this size."""


@dataclass(eq=False)
class Travelling(Meeting):
    """An operation whose other members are in other processes: `works` are gloo's, `headers` what members tell."""

    part: Part | None = None
    works: list[Any] = field(default_factory=list)
    headers: dict[int, Tensor] = field(default_factory=dict)
    given: Callable[[], list[Tensor]] = list
    """What goes into this member's outputs, once the works are done."""

    def stream(self) -> int | None:
        """The stream on which this member's part is; None between CPUs."""
        return self.part.issue.stream if self.part is not None and self.part.issue is not None else None


class ProcessTransport(Transport):
    """This process's rank, and a gloo group beside each of its groups."""

    def __init__(self, sim: SimDevice, meetings: Meetings, rank: int, ranks: int, timeout_s: float) -> None:
        self._sim, self._meetings = sim, meetings
        self._mine = RankDevice(rank, torch.device("sim", rank))
        self._ranks = ranks
        self._timeout = timedelta(seconds=timeout_s)
        self._gloo: dict[Hashable, Any] = {}
        self._open: list[Travelling] = []

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
        meeting = Travelling(what, ranks, part=part)
        self._open.append(meeting)
        inputs = [] if self._sim.shapes_only else [_on_cpu(tensor).clone() for tensor in part.inputs]
        post = _post_message if part.call.kind == "message" else _post_collective
        post(self._gloo[key.group], meeting, part, inputs, key.place, shapes_only=self._sim.shapes_only)
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
                raise Deadlock(
                    f"rank {self._mine.rank} waited in {meeting.what} for {self._timeout.total_seconds():g} s, and the "
                    f"other ranks did not come: let all of them call the same operations in the same order ({error})"
                ) from error
        self._end(meeting)

    def wait_for_all(self, device: int) -> None:
        """Returns once all of this rank's operations have happened: its host is about to wait for them."""
        for meeting in list(self._open):
            self.wait(meeting)

    def host_waits(self, mine: RankDevice, time_ns: int) -> None:
        """This rank's host goes on at that time."""
        host_jump(mine.rank, time_ns)

    def host_ns(self, mine: RankDevice) -> int:
        """This rank's host clock."""
        return self._sim.at(mine.rank).host_ns()

    def _end(self, meeting: Travelling) -> None:
        part = meeting.part
        assert part is not None
        told = {member: _read(header) for member, header in meeting.headers.items()}
        for member, (_, called, _) in told.items():
            if called != _told(part.call):
                meeting.error = Mismatch(
                    f"in {meeting.what} rank {meeting.ranks[part.member]} calls {part.call}, but rank "
                    f"{meeting.ranks[member]} calls {called.rpartition('#')[0]}: let all ranks call the same "
                    "operations with the same sizes in the same order"
                )
                raise meeting.error
        earliest = max(ready_ns for ready_ns, _, _ in told.values())
        sources = meeting.given()
        meeting.done = True
        if part.issue is None:
            meeting.end_ns = earliest
            fill(part.outputs, sources)
            return
        size_bytes = (
            max(sent for _, _, sent in told.values())
            if part.call.kind == "all_to_all"
            else part.call.total_bytes(len(meeting.ranks))
        )
        # The stream was given the same operations by every member, so that this one's end is all members' end.
        start = self._meetings.reserve(meeting, max(earliest, part.issue.stream_ns()), part.call, size_bytes)
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


def _told(call: Call) -> str:
    """What a member calls, in words, and a sum of all that must agree."""
    return f"{call}#{zlib.crc32(repr(call).encode())}"[-400:]


def _header(part: Part) -> Tensor:
    sent = sum(tensor.numel() * tensor.element_size() for tensor in part.inputs)
    content = pickle.dumps((part.ready_ns, _told(part.call), sent))
    return torch.frombuffer(bytearray(content.ljust(HEADER_BYTES, b"\0")), dtype=torch.uint8)


def _read(header: Tensor) -> tuple[int, str, int]:
    found: tuple[int, str, int] = pickle.loads(header.numpy().tobytes())
    return found


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    """The bytes of several tensors, one behind the other."""
    parts = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in tensors]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)


def _unflat(content: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Tensors of these types and sizes from their bytes."""
    sizes = [tensor.numel() * tensor.element_size() for tensor in like]
    parts = torch.split(content[: sum(sizes)], sizes)
    return [part.clone().view(tensor.dtype) for part, tensor in zip(parts, like, strict=True)]


def _post_collective(
    gloo: Any, meeting: Travelling, part: Part, inputs: list[Tensor], place: Place, *, shapes_only: bool
) -> None:
    members, call = len(meeting.ranks), part.call
    headers = [torch.empty(HEADER_BYTES, dtype=torch.uint8) for _ in range(members)]
    meeting.works.append(gloo.allgather([headers], [_header(part)]))
    meeting.headers = dict(enumerate(headers))
    if shapes_only or call.kind == "barrier":
        return
    if call.kind == "all_to_all":
        received = torch.empty(sum(_bytes(output) for output in part.outputs), dtype=torch.uint8)
        splits = [_bytes(t) for t in part.outputs], [_bytes(t) for t in inputs]
        meeting.works.append(gloo.alltoall_base(received, _flat(inputs), *splits))
        meeting.given = lambda: _unflat(received, part.outputs)
        return
    if call.kind in {"broadcast", "scatter"}:
        root = call.root or 0
        like = part.outputs * (members if call.kind == "scatter" else 1)
        sent = _flat(inputs) if part.member == root else torch.empty(sum(map(_bytes, like)), dtype=torch.uint8)
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = root, 0
        meeting.works.append(gloo.broadcast([sent], options))
        meeting.given = lambda: exchange(
            call, [_unflat(sent, inputs or like) if member == root else [] for member in range(members)]
        )[part.member]
        return
    mine = _flat(inputs)
    found = [torch.empty_like(mine) for _ in range(members)]
    meeting.works.append(gloo.allgather([found], [mine]))
    meeting.given = lambda: exchange(call, [_unflat(one, inputs) for one in found])[part.member]


def _post_message(
    gloo: Any, meeting: Travelling, part: Part, inputs: list[Tensor], place: Place, *, shapes_only: bool
) -> None:
    """The sender's header and bytes go one way, the receiver's header the other: it begins when both are ready."""
    tag = place.tag
    sending = part.member == 0
    other = place.destination if sending else place.source
    mine, theirs = _header(part), torch.empty(HEADER_BYTES, dtype=torch.uint8)
    tags = (3 * tag, 3 * tag + 1) if sending else (3 * tag + 1, 3 * tag)
    meeting.works += [gloo.send([mine], other, tags[0]), gloo.recv([theirs], other, tags[1])]
    meeting.headers = {part.member: mine, 1 - part.member: theirs}
    if shapes_only:
        return
    if sending:
        meeting.works.append(gloo.send([_flat(inputs)], other, 3 * tag + 2))
        return
    content = torch.empty(sum(map(_bytes, part.outputs)), dtype=torch.uint8)
    meeting.works.append(gloo.recv([content], other, 3 * tag + 2))
    meeting.given = lambda: _unflat(content, part.outputs)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
