"""What supervisor and workers tell each other, as JSON over the store: reports upwards, generations downwards."""

from typing import Literal

import msgspec

from runtime.elastic.checkpoint import Origin
from solvers.ir.schedule import Action


class Saving(msgspec.Struct, frozen=True, kw_only=True):
    """Checkpoints in a folder that all nodes see: after `every` steps (0: none on the way) and the last; so many kept.

    `on_exit`: also when the supervisor ends.
    """

    folder: str
    every: int
    keep: int
    on_exit: bool
    origin: Origin


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What every worker is told at its start."""

    job: str
    host: str
    port: int
    steps: int
    canonical: bool
    timeout_s: float
    hang_s: float
    injections: tuple["Injection", ...] = ()
    saving: Saving | None = None


Moment = Literal[
    "forward", "backward", "send", "recv", "all-reduce", "vote", "update", "unheard", "regroup", "transfer"
]

How = Literal["kill", "stop"]


class Injection(msgspec.Struct, frozen=True, kw_only=True):
    """A failure to cause: `node` at a `moment` of a step, its `nth` time there (from 1). `stop` is SIGSTOP.

    `vote` is before the gradients' vote, `update` between the vote and the optimizer's step; `unheard` loses the vote's
    answer; `regroup` and `transfer` are within the recovery that leads to the step.
    """

    node: int
    step: int
    moment: Moment = "forward"
    how: How = "kill"
    nth: int = 1


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A layer's states go from one member to another."""

    layer: int
    source: int
    target: int


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """The processes that train together until the next one, and what each member is told of it.

    `members`: node numbers by rank. `base`: the generation whose layers are the ones to go on with. `step`: the next
    step; who ended the one before it except for the optimizer's step does that first. `layers`: the member's own run,
    None for a member without a stage. `groups`: the nodes of each layer that several have. `moves`: in rounds. `fresh`:
    all layers are made anew, with their first weights, or with the states of the checkpoint in the folder `checkpoint`
    if that is not empty. `shapes[i]`: type and shape of what enters layer i. `actions`: the member's walk.
    """

    number: int
    members: tuple[int, ...]
    base: int
    step: int
    layers: tuple[int, int] | None
    groups: dict[int, tuple[int, ...]]
    moves: tuple[Move, ...]
    fresh: bool
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    actions: tuple[Action, ...]
    checkpoint: str = ""


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """A process is ready; `again`: the number that it had before, if it was left behind."""

    node: int
    pid: int
    identity: dict[str, str] = {}  # none is no one's
    again: int | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True, tag="report"):
    """A member has left a generation: before `step`; `final`: all gradients of that step are summed up here.

    `arrived`: all that the member was to receive is here. `losses`: of the last steps that it knows to have counted.
    """

    node: int
    generation: int
    step: int
    final: bool
    arrived: bool
    why: str
    losses: dict[int, float] = {}


class Reached(msgspec.Struct, frozen=True, kw_only=True, tag="reached"):
    """A member's groups stand, or its transfers have ended; `received_bytes` by then."""

    node: int
    generation: int
    what: Literal["grouped", "transferred"]
    received_bytes: int = 0


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag="progress"):
    """A step has counted: its loss, how long it took."""

    node: int
    generation: int
    step: int
    loss: float
    took_us: int


class Done(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """The last step has counted: digests of the member's layers."""

    node: int
    generation: int
    digests: dict[int, str]


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """The job cannot go on."""

    node: int
    sentence: str


class Killed(msgspec.Struct, frozen=True, kw_only=True, tag="killed"):
    """An injected failure, told by the victim right before it."""

    node: int
    moment: str
    how: str
    step: int


class Late(msgspec.Struct, frozen=True, kw_only=True, tag="late"):
    """A process has not left a generation a second after it was told to: where its main thread is."""

    pid: int
    generation: int
    where: str


class Saved(msgspec.Struct, frozen=True, kw_only=True, tag="saved"):
    """A node's part of a checkpoint is on disk; or it is not, and `fault` says why."""

    node: int
    generation: int
    step: int
    layers: tuple[int, ...]
    fault: str


Upward = Hello | Report | Reached | Progress | Done | Failed | Killed | Late | Saved


class Sent(msgspec.Struct, frozen=True):
    """A message with the machine's monotonic clock in ns when it was sent, and when the supervisor's ear had it."""

    at_ns: int
    message: Upward
    heard_ns: int | None = None

    def waited_us(self, now_ns: int) -> tuple[int, int]:
        """How long it took to the supervisor's ear, and from there until it was attended to."""
        heard = self.at_ns if self.heard_ns is None else self.heard_ns
        return (heard - self.at_ns) // 1000, (now_ns - heard) // 1000


UPWARD = msgspec.json.Decoder(Sent)
GENERATION = msgspec.json.Decoder(Generation)
CONFIG = msgspec.json.Decoder(Config)
EVENTS = "events"
"""The queue of messages upwards; `tell/N` is that downwards to node N."""
