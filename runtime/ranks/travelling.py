"""How shares of an operation travel between processes by gloo: first what each member calls, then its bytes."""

import pickle
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from runtime.ranks.exchange import Call, exchange
from runtime.ranks.meeting import Key, Meeting, Part

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
    given: Callable[[set[int]], list[Tensor]] = lambda _: []
    """Receives what goes into this member's outputs, once the works are done and all members agree.

    Only these members sent what they have; nothing goes into the outputs where another one's would be needed."""
    sent: list[Sent] = field(default_factory=list)
    knows: bool = True
    """Whether this member has bytes to give: all of them, but where tensors have shapes only."""
    began_s: float = field(default_factory=time.monotonic)
    """When this member came."""

    def send(self, gloo: Any, tensors: Sequence[Tensor], member: int, tag: int) -> None:
        """Sends bytes, of which nobody waits to hear that they have come: the member takes them when it is there."""
        content = _flat(tensors)
        if content.numel() and self.knows:
            self.sent.append((gloo.send([content], member, tag), content))

    def let_go(self) -> None:
        """The operation is over: its tensors are the program's only, whoever still holds its work.

        `given` holds this meeting, so that they would live until Python looks for such circles, whenever that is.
        """
        self.part, self.given = None, lambda _: []
        self.works, self.headers, self.sent = [], {}, []

    def stream(self) -> int | None:
        """The stream on which this member's part is; None between CPUs."""
        return self.part.issue.stream if self.part is not None and self.part.issue is not None else None


def told(call: Call) -> str:
    """What a member calls, in words, and a sum of all that must agree."""
    return f"{call}#{zlib.crc32(repr(call).encode())}"[-400:]


class Heard(NamedTuple):
    """What a member tells: when it could begin, what it calls, how many bytes it gives, and whether it has them."""

    ready_ns: int
    called: str
    sent_bytes: int
    knows: bool


def _header(part: Part, knows: bool) -> Tensor:
    sent = sum(tensor.numel() * tensor.element_size() for tensor in part.inputs)
    content = pickle.dumps((part.ready_ns, told(part.call), sent, knows))
    return torch.frombuffer(bytearray(content.ljust(HEADER_BYTES, b"\0")), dtype=torch.uint8)


def read(header: Tensor) -> Heard:
    """What a member told."""
    return Heard(*pickle.loads(header.numpy().tobytes()))


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    """The bytes of several tensors, one behind the other."""
    parts = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in tensors]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)


def _unflat(content: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Tensors of these types and sizes from their bytes."""
    sizes = [tensor.numel() * tensor.element_size() for tensor in like]
    parts = torch.split(content[: sum(sizes)], sizes)
    return [part.clone().view(tensor.dtype) for part, tensor in zip(parts, like, strict=True)]


def post_collective(gloo: Any, meeting: Travelling, part: Part, inputs: list[Tensor], key: Key) -> None:
    """Tells all members what this one calls, and sends each what it needs; `given` receives the others' shares."""
    members, me, call, tag = len(meeting.ranks), part.member, part.call, FIRST_TAG + key.number
    headers = [torch.empty(HEADER_BYTES, dtype=torch.uint8) for _ in range(members)]
    meeting.works.append(gloo.allgather([headers], [_header(part, meeting.knows)]))
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

    def given(known: set[int]) -> list[Tensor]:
        like = part.outputs * (members if call.kind == "scatter" else 1) if one_sends else part.inputs
        own = [tensor.reshape(-1) for tensor in inputs]
        shares = [list[Tensor]() for _ in range(members)]
        for sender in sorted(known.intersection(senders)):
            wanted = part.outputs[sender : sender + 1] if call.kind == "all_to_all" else like
            shares[sender] = _received(gloo, wanted, sender, tag, meeting) if sender != me else own
        if not known.issuperset(senders):
            return []
        if call.kind == "all_to_all":
            return [shares[sender][me if sender == me else 0].clone() for sender in senders]
        return exchange(call, shares)[me]

    meeting.given = given


def post_message(gloo: Any, meeting: Travelling, part: Part, inputs: list[Tensor], key: Key) -> None:
    """The sender's header and bytes go one way, the receiver's header the other: it begins when both are ready."""
    place = key.place
    sending = part.member == 0
    other, tag = place.destination if sending else place.source, 3 * place.tag
    mine, theirs = _header(part, meeting.knows), torch.empty(HEADER_BYTES, dtype=torch.uint8)
    tags = (tag, tag + 1) if sending else (tag + 1, tag)
    meeting.works += [gloo.send([mine], other, tags[0]), gloo.recv([theirs], other, tags[1])]
    meeting.headers = {part.member: mine, 1 - part.member: theirs}
    if sending:
        meeting.send(gloo, inputs, other, tag + 2)
    else:
        # `known` counts the message's two members, of which the sender is the first; `other` is its place in the group.
        meeting.given = lambda known: _received(gloo, part.outputs, other, tag + 2, meeting) if 0 in known else []


def _received(gloo: Any, like: Sequence[Tensor], sender: int, tag: int, meeting: Travelling) -> list[Tensor]:
    """What a member has sent, which has come: its header was there. gloo aborts on another size than is expected."""
    content = torch.empty(sum(map(_bytes, like)), dtype=torch.uint8)
    if content.numel():
        gloo.recv([content], sender, tag).wait()
    return _unflat(content, like)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
