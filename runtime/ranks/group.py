"""One file: a group is all of its operations. The process group `sim` of torch.distributed, in virtual time."""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

import torch
import torch.distributed as dist
from torch import Tensor

from runtime.device.native import core
from runtime.ranks.exchange import Call, Kind, reduction_name, require_fit, require_lists
from runtime.ranks.lanes import Issue, Lane, hold, let_go
from runtime.ranks.meeting import Key, Meeting, Part, Place
from runtime.ranks.works import SimWork, SimWorks
from solvers.ir.errors import InvalidInput

BACKEND = "sim"
ALL_REDUCE = "c10d::allreduce_"
"""What the operation is called where a group of torch's own does it."""
ProcessGroup: Any = dist.ProcessGroup  # Its stub has overloads and names of parameters that no caller uses.


@dataclass
class RankDevice:
    """What one rank has: its device, and the lanes of its groups and messages, made when they are first needed."""

    rank: int
    device: torch.device
    lanes: dict[Any, Lane] = field(default_factory=dict)
    works: WeakSet[SimWork] = field(default_factory=WeakSet)
    """Those that somebody holds."""

    def let_go(self) -> None:
        """Nobody will wait for works that have not been awaited; PyTorch lists some until the process ends."""
        for work in list(self.works):
            work.let_go()

    def lane(self, key: object) -> Lane:
        """The lane of this name."""
        if key not in self.lanes:
            self.lanes[key] = Lane(self.device, len(self.lanes))
        return self.lanes[key]


class SimGroup(ProcessGroup):  # type: ignore[misc]
    """One rank's end of a group. `transport` brings the members' shares together: threads' or processes'.

    `members` are the global ranks in group order; `key` is the same for all of them and no other group's.
    """

    def __init__(self, transport: Any, mine: RankDevice, key: Hashable, members: Sequence[int]) -> None:
        super().__init__(members.index(mine.rank), len(members))
        self.members = tuple(members)
        self.member = self.members.index(mine.rank)
        self._transport, self._mine, self._key = transport, mine, key
        self._calls: Counter[Place] = Counter()
        self._together: list[SimWork] | None = None

    def getBackendName(self) -> str:
        """The backend's name."""
        return BACKEND

    def size(self) -> int:
        """How many members the group has."""
        return len(self.members)

    def rank(self) -> int:
        """This member's place in the group."""
        return self.member

    @property
    def group_name(self) -> str:
        """The name under which torch.distributed knows the group."""
        name: str = dist.distributed_c10d._world.pg_names[self]
        return name

    supports_splitting = False

    def _get_backend(self, device: torch.device) -> "SimGroup":
        """PyTorch asks a group for its backend where it was told the device, and it for what it can do."""
        return self

    def __repr__(self) -> str:
        return f"SimGroup(member {self.member} of ranks {list(self.members)})"

    # What the works ask of the transport.

    def settle(self, meeting: Meeting) -> None:
        """Returns once the operation has happened; others are let go on until then."""
        self._transport.wait(meeting)

    def poll(self, meeting: Meeting) -> None:
        """This rank has asked in vain whether the operation has happened."""
        self._transport.poll(meeting)

    def host_waits(self, time_ns: int) -> None:
        """This rank's host goes on at that time."""
        self._transport.host_waits(self._mine, time_ns)

    def host_ns(self) -> int:
        """This rank's host clock."""
        now: int = self._transport.host_ns(self._mine)
        return now

    # Collectives.

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> SimWork:
        """Every member's tensors become their reduction."""
        return self._meet("all_reduce", tensors, tensors, reduction=_reduction(opts))

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> SimWork:
        """The same for several tensors at once."""
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: list[Tensor], opts: Any) -> SimWork:
        """The root's tensors become the reduction; the others keep theirs."""
        outputs = tensors if self.member == opts.rootRank else []
        return self._meet("reduce", tensors, outputs, reduction=_reduction(opts), root=opts.rootRank)

    def broadcast(self, tensors: list[Tensor], opts: Any) -> SimWork:
        """Every member's tensors become the root's."""
        inputs, outputs = (tensors, []) if self.member == opts.rootRank else ([], tensors)
        return self._meet("broadcast", inputs, outputs, root=opts.rootRank)

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> SimWork:
        """Every member's list becomes all members' tensors."""
        return self._meet("all_gather", inputs, outputs[0], common=inputs)

    def all_gather_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> SimWork:
        """The same into one tensor, one behind the other."""
        return self._meet("all_gather_single", [tensor], [output], common=[tensor])

    def all_gather_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> SimWork:
        """The same for several tensors at once."""
        return self._meet("all_gather_single", inputs, outputs, common=inputs)

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None) -> SimWork:
        """Each member's output becomes the reduction of all members' tensors for it."""
        return self._meet("reduce_scatter", inputs[0], outputs, reduction=_reduction(opts))

    def reduce_scatter_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> SimWork:
        """The same from one tensor, one behind the other."""
        return self._meet("reduce_scatter_single", [tensor], [output], reduction=_reduction(opts))

    def reduce_scatter_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> SimWork:
        """The same for several tensors at once."""
        return self._meet("reduce_scatter_single", inputs, outputs, reduction=_reduction(opts))

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> SimWork:
        """The root's list becomes all members' tensors."""
        wanted = outputs[0] if self.member == opts.rootRank else []
        return self._meet("gather", inputs, wanted, common=inputs, root=opts.rootRank)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> SimWork:
        """Each member's output becomes its tensor of the root's list."""
        given = inputs[0] if self.member == opts.rootRank else []
        return self._meet("scatter", given, outputs, common=outputs, root=opts.rootRank)

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> SimWork:
        """Each member's i-th output becomes member i's tensor for it. Sizes may differ from pair to pair."""
        return self._meet(
            "all_to_all", inputs, outputs, common=[], dtypes=tuple({tensor.dtype: 0 for tensor in inputs})
        )

    def all_to_all_single(
        self, output: Tensor, tensor: Tensor, output_sizes: list[int], input_sizes: list[int], opts: Any = None
    ) -> SimWork:
        """The same with rows of one tensor, so many to each member, or equally many."""
        return self.alltoall(_rows(output, output_sizes, self.size()), _rows(tensor, input_sizes, self.size()), opts)

    def barrier(self, opts: Any = None) -> SimWork:
        """Every member's host waits for all."""
        return self._meet("barrier", [], [])

    def send(self, tensors: list[Tensor], destination: int, tag: int = 0) -> SimWork:
        """A message to a member, which must receive it: it begins when both are ready."""
        return self._message(self.member, destination, tag, tensors)

    def recv(self, tensors: list[Tensor], source: int, tag: int = 0) -> SimWork:
        """A message from a member."""
        return self._message(source, self.member, tag, tensors)

    def recv_anysource(self, tensors: list[Tensor], tag: int = 0) -> SimWork:
        """Refused: which message came first would depend on the machine's mood."""
        raise InvalidInput("group 'sim' receives from a rank that you name, not from any: name the sender")

    # The names of PyTorch 2.11.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    def _start_coalescing(self, device: torch.device) -> None:
        """What is called from now on counts as one operation; each takes its own time all the same."""
        self._together = []

    def _end_coalescing(self, device: torch.device) -> SimWorks:
        """The operations since `_start_coalescing`."""
        together, self._together = self._together, None
        return SimWorks(together or [])

    def _message(self, source: int, destination: int, tag: int, tensors: list[Tensor]) -> SimWork:
        sending = self.member == source
        if source == destination:
            raise InvalidInput(f"rank {self._mine.rank} exchanges a message with itself: copy the tensor instead")
        pair = (self.members[source], self.members[destination])
        return self._come(
            Call("message", *_common(tensors)),
            tensors if sending else [],
            [] if sending else tensors,
            lane=("message", self._key, source, destination, tag),
            name="send" if sending else "recv",
            at=(Place("message", source, destination, tag), pair, 0 if sending else 1),
        )

    def _meet(
        self,
        kind: Kind,
        inputs: list[Tensor],
        outputs: list[Tensor],
        *,
        common: list[Tensor] | None = None,
        dtypes: tuple[torch.dtype, ...] | None = None,
        reduction: str | None = None,
        root: int | None = None,
    ) -> SimWork:
        shared = common if common is not None else inputs or outputs
        return self._come(
            Call(kind, dtypes or _common(shared)[0], _common(shared)[1], reduction, root),
            inputs,
            outputs,
            lane=("group", self._key),
            name=kind,
            at=(Place(), self.members, self.member),
        )

    def _come(
        self,
        call: Call,
        inputs: list[Tensor],
        outputs: list[Tensor],
        *,
        lane: object,
        name: str,
        at: tuple[Place, tuple[int, ...], int],
    ) -> SimWork:
        place, ranks, member = at
        self._calls[place] += 1
        number = self._calls[place]
        on_host = [tensor.device.type == "cpu" for tensor in (*inputs, *outputs)]
        if any(on_host) and not all(on_host):
            raise InvalidInput(f"{call} mixes tensors of the CPU and of device sim: move them to one of the two")
        require_fit(call, inputs, outputs, len(ranks), None if any(on_host) else self._mine.device)
        require_lists(call, inputs, outputs, len(ranks), member)
        group = "" if call.kind == "message" else dist.distributed_c10d._world.pg_names.get(self, "")
        for tensor in outputs:  # a tape that records hears of it from nobody else
            core.note_write(tensor, ALL_REDUCE if call.kind == "all_reduce" else "", group)
        own = self._mine.lane(lane) if not any(on_host) else None
        issue = _issued(own, name, inputs, outputs) if own is not None else None
        ready_ns = issue.ready_ns if issue is not None else self.host_ns()
        part = Part(member, call, inputs, outputs, issue, ready_ns)
        message = call.kind == "message"
        between = f"from rank {ranks[0]} to rank {ranks[1]}" if message else f"of ranks {', '.join(map(str, ranks))}"
        what = f"{call.kind} {number} {between}"
        meeting = self._transport.arrive(Key(self._key, place, number), what, ranks, part)
        work = SimWork(self, meeting, part, own)
        self._mine.works.add(work)
        if self._together is not None:
            self._together.append(work)
        return work


def _issued(lane: Lane, name: str, inputs: list[Tensor], outputs: list[Tensor]) -> Issue:
    """The operation on its lane; the work lets the tensors go."""
    hold([*inputs, *outputs])
    try:
        return lane.issue(name, inputs, outputs)
    except BaseException:
        let_go([*inputs, *outputs])
        raise


def _reduction(opts: Any) -> str:
    return "SUM" if opts is None else reduction_name(opts.reduceOp)


def _common(tensors: Sequence[Tensor]) -> tuple[tuple[torch.dtype, ...], tuple[int, ...]]:
    return tuple(t.dtype for t in tensors), tuple(t.numel() * t.element_size() for t in tensors)


def _rows(tensor: Tensor, sizes: list[int], members: int) -> list[Tensor]:
    if sizes:
        return list(torch.split(tensor, sizes))
    if tensor.shape[0] % members:
        raise InvalidInput(
            f"all_to_all of {tensor.shape[0]} rows over {members} ranks: give a multiple of {members}, or sizes"
        )
    return list(tensor.chunk(members)) if tensor.shape[0] else [tensor] * members
