"""What the supervisor keeps of its processes, and what it is given to begin with."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from torch._C._distributed_c10d import TCPStore

from runtime.elastic.checkpoint import Checkpoint
from runtime.elastic.children import Children, Inbox
from runtime.elastic.events import Stopwatch
from runtime.elastic.keeper import Keeper
from runtime.elastic.messages import Report
from runtime.elastic.plans import Decided
from runtime.elastic.walk import Shapes


@dataclass
class Node:
    """A process under its present number; `ready`: it waits to be called."""

    pid: int
    ready: bool = False
    gone: bool = False
    hung: bool = False


@dataclass
class Gathering:
    """A generation is ending: who has reported, why, and since when."""

    watch: Stopwatch
    why: str
    began_s: float
    reports: dict[int, Report] = field(default_factory=dict)


class Posts(NamedTuple):
    """How the supervisor reaches its processes, and they it; who keeps checkpoints."""

    store: TCPStore
    inbox: Inbox
    children: Children
    keeper: Keeper


class Beginning(NamedTuple):
    """How many nodes there are, what they must be, types and shapes between layers, the first layout.

    `resumed`: the checkpoint to go on with.
    """

    nodes: int
    identity: Mapping[str, str]
    shapes: Shapes
    layout: Callable[[Collection[int]], Decided]
    resumed: Checkpoint | None
