"""Ranks as processes: the same group, whose bytes and clocks travel by gloo."""

import os
import pickle
import zlib
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack, suppress
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
from runtime.ranks.meeting import Key, Meeting, Meetings, Mismatch, Part, fill
from runtime.ranks.report import rank_reports
from runtime.ranks.turns import Deadlock
from solvers.ir.errors import InvalidInput
from solvers.ir.hardware import Hardware
from solvers.ir.report import Report
from solvers.timeline.collectives import Algorithm, accelerators

HEADER_BYTES = 512
"""Each member tells the others when it could begin and what it calls, in a message of this size."""


FIRST_TAG = 1 << 24
"""The tags of collectives' bytes; those of messages are below."""
Sent = tuple[Any, Tensor]
"""gloo's work and the bytes, which must live until it is done."""


@dataclass(eq=False)
class Travelling(Meeting):
    """An operation whose other members are in other processes: `works` are gloo's, `headers` what members tell."""

    part: Part | None = None
    works: list[Any] = field(default_factory=list)
    headers: dict[int, Tensor] = field(default_factory=dict)
    given: Callable[[], list[Tensor]] = list
    """Receives what goes into this member's outputs, once the works are done and all members agree."""
    sent: list[Sent] = field(default_factory=list)
    shapes_only: bool = False

    def send(self, gloo: Any, tensors: Sequence[Tensor], member: int, tag: int) -> None:
        """Sends bytes, of which nobody waits to hear that they have come: the member takes them when it is there."""
        content = _flat(tensors)
        if content.numel() and not self.shapes_only:
            self.sent.append((gloo.send([content], member, tag), content))

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
        post = _post_message if part.call.kind == "message" else _post_collective
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
                raise Deadlock(
                    f"rank {self._mine.rank} waited in {meeting.what} for {self._timeout.total_seconds():g} s, and the "
                    f"other ranks did not come: let all of them call the same operations in the same order ({error})"
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
        sources = [] if self._sim.shapes_only else meeting.given()
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
    meetings = Meetings(sim.hardware, names[:ranks], algorithm, sim.shapes_only)
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
    return tensor if tensor.device.type == "cpu" else bytes_of(tensor)


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


def _post_collective(gloo: Any, meeting: Travelling, part: Part, inputs: list[Tensor], key: Key) -> None:
    """Tells all members what this one calls, and sends each what it needs; `given` receives the others' shares."""
    members, me, call, tag = len(meeting.ranks), part.member, part.call, FIRST_TAG + key.number
    headers = [torch.empty(HEADER_BYTES, dtype=torch.uint8) for _ in range(members)]
    meeting.works.append(gloo.allgather([headers], [_header(part)]))
    meeting.headers = dict(enumerate(headers))
    if call.kind == "barrier":
        return
    one_sends = call.kind in {"broadcast", "scatter"}
    senders = [call.root or 0] if one_sends else list(range(members))
    if me in senders:
        for other in range(members):
            if other != me:
                share = inputs[other : other + 1] if call.kind == "all_to_all" else inputs
                meeting.send(gloo, share, other, tag)

    def given() -> list[Tensor]:
        like = part.outputs * (members if call.kind == "scatter" else 1) if one_sends else inputs
        own = [tensor.reshape(-1) for tensor in inputs]
        shares = [list[Tensor]() for _ in range(members)]
        for sender in senders:
            wanted = part.outputs[sender : sender + 1] if call.kind == "all_to_all" else like
            shares[sender] = _received(gloo, wanted, sender, tag, meeting) if sender != me else own
        if call.kind == "all_to_all":
            return [shares[sender][me if sender == me else 0].clone() for sender in senders]
        return exchange(call, shares)[me]

    meeting.given = given


def _post_message(gloo: Any, meeting: Travelling, part: Part, inputs: list[Tensor], key: Key) -> None:
    """The sender's header and bytes go one way, the receiver's header the other: it begins when both are ready."""
    place = key.place
    sending = part.member == 0
    other, tag = place.destination if sending else place.source, 3 * place.tag
    mine, theirs = _header(part), torch.empty(HEADER_BYTES, dtype=torch.uint8)
    tags = (tag, tag + 1) if sending else (tag + 1, tag)
    meeting.works += [gloo.send([mine], other, tags[0]), gloo.recv([theirs], other, tags[1])]
    meeting.headers = {part.member: mine, 1 - part.member: theirs}
    if sending:
        meeting.send(gloo, inputs, other, tag + 2)
    else:
        meeting.given = lambda: _received(gloo, part.outputs, other, tag + 2, meeting)


def _received(gloo: Any, like: Sequence[Tensor], sender: int, tag: int, meeting: Travelling) -> list[Tensor]:
    """What a member has sent, which has come: its header was there. gloo aborts on another size than is expected."""
    content = torch.empty(sum(map(_bytes, like)), dtype=torch.uint8)
    if content.numel():
        gloo.recv([content], sender, tag).wait()
    return _unflat(content, like)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
